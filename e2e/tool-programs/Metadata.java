import java.lang.reflect.Method;
import java.sql.*;
import java.util.*;

/** Every call of pgjdbc's DatabaseMetaData that gives rows or a value, over one schema. Called by e2e/tools with the port. */
final class Metadata {
    static final String[] SCHEMA = {
        "CREATE SCHEMA meta",
        "CREATE TABLE meta.author (id serial PRIMARY KEY, name varchar(40) NOT NULL UNIQUE, born date, worth numeric(8,2) DEFAULT 1.5, CONSTRAINT named CHECK (name <> ''))",
        "CREATE TABLE meta.book (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, author_id integer NOT NULL REFERENCES meta.author ON DELETE CASCADE,"
            + " title text NOT NULL, tags text[], at timestamp with time zone DEFAULT now(), code uuid, cover bytea, price real, UNIQUE (author_id, title))",
        "CREATE INDEX book_at ON meta.book (at, id)",
        "CREATE INDEX book_lower ON meta.book (lower(title)) WHERE price > 3",
        "CREATE VIEW meta.overview AS SELECT a.name, b.title FROM meta.author a JOIN meta.book b ON b.author_id = a.id",
        "CREATE SEQUENCE meta.apart",
        "COMMENT ON TABLE meta.book IS 'books'",
        "COMMENT ON COLUMN meta.book.title IS 'what it is called'",
        "CREATE ROLE meta_reader",
        "GRANT SELECT ON meta.book TO meta_reader",
        "CREATE TABLE meta.pair (a int, b int, c text, PRIMARY KEY (b, a))",
        "CREATE TABLE meta.single (x int REFERENCES meta.author (id), p int, q int, FOREIGN KEY (p, q) REFERENCES meta.pair (b, a) ON UPDATE SET NULL DEFERRABLE INITIALLY DEFERRED)",
    };
    /** Facts about the program, the machine or the connection. */
    static final Set<String> LEFT_OUT = Set.of("getURL", "getDatabaseProductVersion", "getDatabaseMinorVersion", "getConnection");

    static Object rows(ResultSet rows, String... estimates) throws SQLException {
        ResultSetMetaData about = rows.getMetaData();
        List<String> lines = new ArrayList<>();
        while (rows.next()) {
            StringBuilder line = new StringBuilder();
            for (int n = 1; n <= about.getColumnCount(); n++) line.append(n == 1 ? "" : "|").append(List.of(estimates).contains(about.getColumnName(n)) ? "..." : rows.getString(n));
            lines.add(line.toString().replace('\n', ' '));
        }
        StringBuilder head = new StringBuilder();
        for (int n = 1; n <= about.getColumnCount(); n++) head.append(about.getColumnName(n)).append(':').append(about.getColumnTypeName(n)).append(' ');
        return head + lines.toString();
    }

    public static void main(String[] args) throws Exception {
        Steps steps = new Steps("pgjdbc");
        String url = "jdbc:postgresql://127.0.0.1:" + args[0] + "/postgres?user=postgres";
        try (Connection connection = DriverManager.getConnection(url)) {
            for (String statement : SCHEMA) {
                steps.step(statement.length() > 60 ? statement.substring(0, 60) : statement, () -> {
                    try (Statement s = connection.createStatement()) { s.execute(statement); }
                    return null;
                });
            }
            DatabaseMetaData about = connection.getMetaData();
            steps.step("getTables", () -> rows(about.getTables(null, "meta", "%", null)));
            steps.step("getTables of kinds", () -> rows(about.getTables(null, null, "%o%", new String[] {"TABLE", "VIEW", "SEQUENCE"})));
            steps.step("getTables of the catalog", () -> rows(about.getTables(null, "pg_catalog", "pg\\_cla%", null)));
            steps.step("getColumns", () -> rows(about.getColumns(null, "meta", "%", "%")));
            steps.step("getPrimaryKeys", () -> rows(about.getPrimaryKeys(null, "meta", "pair")));
            steps.step("getPrimaryKeys of another", () -> rows(about.getPrimaryKeys(null, "meta", "book")));
            steps.step("getIndexInfo", () -> rows(about.getIndexInfo(null, "meta", "book", false, true), "CARDINALITY", "PAGES"));
            steps.step("getIndexInfo unique", () -> rows(about.getIndexInfo(null, "meta", "author", true, true), "CARDINALITY", "PAGES"));
            steps.step("getImportedKeys", () -> rows(about.getImportedKeys(null, "meta", "single")));
            steps.step("getExportedKeys", () -> rows(about.getExportedKeys(null, "meta", "author")));
            steps.step("getCrossReference", () -> rows(about.getCrossReference(null, "meta", "author", null, "meta", "book")));
            steps.step("getBestRowIdentifier", () -> rows(about.getBestRowIdentifier(null, "meta", "book", DatabaseMetaData.bestRowSession, false)));
            steps.step("getVersionColumns", () -> rows(about.getVersionColumns(null, "meta", "book")));
            steps.step("getTablePrivileges", () -> rows(about.getTablePrivileges(null, "meta", "book")));
            steps.step("getColumnPrivileges", () -> rows(about.getColumnPrivileges(null, "meta", "book", "%")));
            steps.step("getSchemas", () -> rows(about.getSchemas(null, "m%")));
            steps.step("getProcedures", () -> rows(about.getProcedures(null, "meta", "%")));
            steps.step("getFunctions", () -> rows(about.getFunctions(null, "meta", "%")));
            steps.step("getFunctionColumns", () -> rows(about.getFunctionColumns(null, "meta", "%", "%")));
            steps.step("getUDTs", () -> rows(about.getUDTs(null, "meta", "%", null)));
            steps.step("getClientInfoProperties", () -> rows(about.getClientInfoProperties()));
            steps.step("getTableTypes", () -> rows(about.getTableTypes()));
            // Types and words that Varve lacks are not among its rows.
            steps.step("getTypeInfo of what both have", () -> {
                ResultSet types = about.getTypeInfo();
                Set<String> wanted = new TreeSet<>(List.of("bool", "int2", "int4", "int8", "text", "varchar", "numeric", "timestamptz", "date", "bytea", "uuid", "json", "_text", "serial"));
                TreeMap<String, String> found = new TreeMap<>();
                while (types.next()) {
                    if (!wanted.contains(types.getString(1))) continue;
                    StringBuilder line = new StringBuilder();
                    for (int n = 2; n <= types.getMetaData().getColumnCount(); n++) line.append('|').append(types.getString(n));
                    found.put(types.getString(1), line.toString());
                }
                return found;
            });
            steps.step("ResultSetMetaData", () -> {
                try (Statement s = connection.createStatement(); ResultSet r = s.executeQuery("SELECT b.id, b.title AS t, a.worth, 1 + 1 FROM meta.book b JOIN meta.author a ON a.id = b.author_id")) {
                    ResultSetMetaData m = r.getMetaData();
                    List<Object> said = new ArrayList<>();
                    for (int n = 1; n <= m.getColumnCount(); n++)
                        said.add(List.of(m.getColumnLabel(n), m.getColumnName(n), m.getTableName(n), m.getSchemaName(n), m.isNullable(n), m.isAutoIncrement(n), m.getPrecision(n), m.getScale(n)));
                    return said;
                }
            });
            steps.step("an updatable result", () -> {
                try (Statement s = connection.createStatement(ResultSet.TYPE_SCROLL_INSENSITIVE, ResultSet.CONCUR_UPDATABLE)) {
                    s.executeUpdate("INSERT INTO meta.author (name) VALUES ('Ada'), ('Grace')");
                    ResultSet r = s.executeQuery("SELECT id, name FROM meta.author ORDER BY id");
                    r.next(); r.updateString("name", "Augusta"); r.updateRow();
                    r.next(); r.deleteRow();
                    r.moveToInsertRow(); r.updateInt("id", 77); r.updateString("name", "Joan"); r.insertRow();
                    return rows(s.executeQuery("SELECT id, name FROM meta.author ORDER BY id"));
                }
            });
            steps.step("generated keys", () -> {
                try (PreparedStatement p = connection.prepareStatement("INSERT INTO meta.author (name) VALUES (?)", new String[] {"id"})) {
                    p.setString(1, "Mary"); p.executeUpdate();
                    return rows(p.getGeneratedKeys());
                }
            });
            Method[] methods = DatabaseMetaData.class.getMethods();
            Arrays.sort(methods, Comparator.comparing(Method::getName));
            for (Method method : methods) {
                Class<?> type = method.getReturnType();
                boolean isPlain = type == boolean.class || type == int.class || type == long.class || type == String.class;
                if (method.getParameterCount() == 0 && isPlain && !LEFT_OUT.contains(method.getName()) && method.getDeclaringClass() == DatabaseMetaData.class)
                    steps.step(method.getName(), () -> method.invoke(about));
            }
        }
    }
}
