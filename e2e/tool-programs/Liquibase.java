import java.io.StringWriter;
import java.nio.file.*;
import java.sql.*;
import java.util.*;
import liquibase.Scope;
import liquibase.command.CommandScope;
import liquibase.database.DatabaseFactory;
import liquibase.database.jvm.JdbcConnection;
import liquibase.resource.DirectoryResourceAccessor;

/** Liquibase against a server: update, rollback, diff, drop. Called by e2e/tools with the port and a folder for the change log. */
final class Liquibase {
    static final String CHANGES = """
        databaseChangeLog:
        - changeSet:
            id: 1
            author: e2e
            changes:
            - createTable:
                tableName: author
                remarks: who writes
                columns:
                - column: {name: id, type: bigint, autoIncrement: true, constraints: {primaryKey: true, nullable: false}}
                - column: {name: name, type: varchar(40), remarks: in full, constraints: {nullable: false, unique: true}}
                - column: {name: born, type: date}
            - createTable:
                tableName: book
                columns:
                - column: {name: id, type: int, constraints: {primaryKey: true, nullable: false}}
                - column: {name: author_id, type: bigint}
                - column: {name: price, type: 'decimal(8,2)', defaultValueNumeric: 9.99}
                - column: {name: at, type: timestamp with time zone, defaultValueComputed: now()}
                - column: {name: sold, type: boolean, defaultValueBoolean: false}
            - addForeignKeyConstraint: {baseTableName: book, baseColumnNames: author_id, referencedTableName: author, referencedColumnNames: id, constraintName: book_author, onDelete: CASCADE}
            - createIndex: {tableName: book, indexName: book_at, columns: [{column: {name: at}}]}
            - createSequence: {sequenceName: counter, startValue: 5, incrementBy: 2}
        - changeSet:
            id: 2
            author: e2e
            changes:
            - addColumn: {tableName: author, columns: [{column: {name: rank, type: int, defaultValueNumeric: 0}}]}
            - renameColumn: {tableName: book, oldColumnName: price, newColumnName: cost}
            - modifyDataType: {tableName: author, columnName: name, newDataType: varchar(80)}
            - addNotNullConstraint: {tableName: book, columnName: cost, defaultNullValue: '1'}
            - addUniqueConstraint: {tableName: book, columnNames: 'author_id, cost', constraintName: one_cost}
            - createView: {viewName: cheap, selectQuery: 'SELECT id, cost FROM book WHERE cost < 10'}
            - insert: {tableName: author, columns: [{column: {name: name, value: Ada}}]}
            rollback:
            - dropView: {viewName: cheap}
            - dropUniqueConstraint: {tableName: book, constraintName: one_cost}
            - renameColumn: {tableName: book, oldColumnName: cost, newColumnName: price}
            - dropColumn: {tableName: author, columnName: rank}
        """;

    public static void main(String[] args) throws Exception {
        java.util.logging.LogManager.getLogManager().reset();
        Steps steps = new Steps("liquibase");
        Path folder = Files.createTempDirectory(Path.of(args[1]), "liquibase");
        Files.writeString(folder.resolve("changes.yaml"), CHANGES);
        String url = "jdbc:postgresql://127.0.0.1:" + args[0] + "/postgres?user=postgres";
        Map<String, Object> scope = Map.of(Scope.Attr.resourceAccessor.name(), new DirectoryResourceAccessor(folder), Scope.Attr.ui.name(), new liquibase.ui.LoggerUIService());
        Scope.child(scope, () -> {
            steps.step("update", () -> command(url, "update"));
            steps.step("update again", () -> command(url, "update"));
            steps.step("what is there", () -> ask(url, "SELECT id, exectype FROM databasechangelog ORDER BY orderexecuted"));
            steps.step("rollbackCount", () -> command(url, "rollbackCount", "count", 1));
            steps.step("update after it", () -> command(url, "update"));
            steps.step("validate", () -> command(url, "validate"));
            steps.step("tag", () -> command(url, "tag", "tag", "one"));
            steps.step("generateChangelog", () -> {
                Path made = folder.resolve("made.yaml");
                new CommandScope("generateChangelog").addArgumentValue("url", url).addArgumentValue("username", "postgres").addArgumentValue("changelogFile", made.toString()).setOutput(new java.io.ByteArrayOutputStream()).execute();
                String text = Files.readString(made);
                return text.replaceAll("(id: \\d+-|author: .*)", "").replace('\n', ' ').replaceAll(" +", " ");
            });
            steps.step("dropAll", () -> command(url, "dropAll"));
            steps.step("what is left", () -> ask(url, "SELECT tablename FROM pg_tables WHERE schemaname = 'public'"));
        });
        try (var files = Files.walk(folder)) { files.sorted(Comparator.reverseOrder()).forEach(path -> path.toFile().delete()); }
        System.exit(0);
    }

    static Object command(String url, String name, Object... more) throws Exception {
        CommandScope command = new CommandScope(name).addArgumentValue("url", url).addArgumentValue("username", "postgres");
        if (!name.equals("dropAll") && !name.equals("tag")) command.addArgumentValue("changelogFile", "changes.yaml");
        for (int n = 0; n < more.length; n += 2) command.addArgumentValue((String) more[n], more[n + 1]);
        command.setOutput(new java.io.ByteArrayOutputStream()).execute();
        return null;
    }

    static Object ask(String url, String sql) throws SQLException {
        try (Connection c = DriverManager.getConnection(url); Statement s = c.createStatement()) { return Metadata.rows(s.executeQuery(sql)); }
    }
}
