//! sqlx against a server: what `query!` asks when it compiles (describe), its migrations, queries. Called by
//! e2e/tools with the port and a folder.

use std::path::PathBuf;

use sqlx::postgres::{PgConnectOptions, PgPool, PgPoolOptions};
use sqlx::{Column, Either, Executor, Row, TypeInfo};

type Said = Result<String, Box<dyn std::error::Error>>;

const SCHEMA: [&str; 3] = [
    "CREATE TABLE author (id serial PRIMARY KEY, name varchar(40) NOT NULL UNIQUE, born date, worth numeric(8,2))",
    "CREATE TABLE book (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, author_id int NOT NULL REFERENCES author, title text, tags text[], at timestamptz NOT NULL DEFAULT now())",
    "CREATE VIEW overview AS SELECT a.name, b.title FROM author a JOIN book b ON b.author_id = a.id",
];

const DESCRIBED: [&str; 16] = [
    "SELECT id, name, born FROM author WHERE id = $1",
    "SELECT * FROM book WHERE title = $1 AND at > $2 LIMIT $3",
    "INSERT INTO author (name, born) VALUES ($1, $2) RETURNING id, name, worth",
    "UPDATE author SET name = $1, worth = worth + $2 WHERE id = $3",
    "DELETE FROM book WHERE id = ANY($1) RETURNING title",
    "SELECT a.name, b.title FROM author a LEFT JOIN book b ON b.author_id = a.id",
    "SELECT a.name, b.title FROM author a RIGHT JOIN book b ON b.author_id = a.id",
    "SELECT a.name, b.id FROM author a FULL JOIN book b ON b.author_id = a.id",
    "SELECT count(*), max(name), coalesce(sum(id), 0) FROM author",
    "SELECT name AS \"name!\", upper(name) AS up FROM author ORDER BY 1",
    "SELECT name, title FROM overview",
    "WITH x AS (SELECT id FROM author) SELECT x.id, now() FROM x",
    "SELECT 1 AS one, 'x' AS two, NULL::int AS three, $1::text AS four",
    "SELECT tags, array_length(tags, 1) FROM book WHERE $1 = ANY(tags)",
    "SELECT id FROM author UNION SELECT author_id FROM book",
    "SELECT nosuch FROM author",
];

async fn describe(pool: &PgPool, sql: &str) -> Said {
    let found = match pool.describe(sql).await {
        Ok(found) => found,
        Err(error) => return Ok(format!("refused: {}", error.as_database_error().map_or(error.to_string(), |e| e.message().to_owned()))),
    };
    let parameters = match found.parameters() {
        Some(Either::Left(types)) => types.iter().map(|t| t.name().to_owned()).collect(),
        Some(Either::Right(count)) => vec![format!("{count} of no type")],
        None => Vec::new(),
    };
    let columns: Vec<String> = (0..found.columns().len())
        .map(|n| format!("{} {} nullable {:?}", found.column(n).name(), found.column(n).type_info().name(), found.nullable(n)))
        .collect();
    Ok(format!("{parameters:?} -> {columns:?}"))
}

async fn migrate(pool: &PgPool, folder: PathBuf) -> Said {
    std::fs::create_dir_all(&folder)?;
    std::fs::write(folder.join("1_first.up.sql"), "CREATE TABLE first (id int PRIMARY KEY); INSERT INTO first VALUES (1);")?;
    std::fs::write(folder.join("1_first.down.sql"), "DROP TABLE first;")?;
    std::fs::write(folder.join("2_second.up.sql"), "ALTER TABLE first ADD COLUMN note text DEFAULT 'x'; CREATE INDEX noted ON first (note);")?;
    std::fs::write(folder.join("2_second.down.sql"), "ALTER TABLE first DROP COLUMN note;")?;
    let migrator = sqlx::migrate::Migrator::new(folder.clone()).await?;
    migrator.run(pool).await?;
    migrator.run(pool).await?;
    let note: String = sqlx::query("SELECT note FROM first").fetch_one(pool).await?.get(0);
    migrator.undo(pool, 1).await?;
    migrator.run(pool).await?;
    migrator.undo(pool, 0).await?;
    let left: i64 = sqlx::query_scalar("SELECT count(*) FROM _sqlx_migrations").fetch_one(pool).await?;
    std::fs::remove_dir_all(folder)?;
    Ok(format!("{note} {left}"))
}

async fn queries(pool: &PgPool) -> Said {
    let mut transaction = pool.begin().await?;
    let id: i32 = sqlx::query_scalar("INSERT INTO author (name) VALUES ($1) RETURNING id").bind("Ada").fetch_one(&mut *transaction).await?;
    for n in 0..3i32 {
        let tags = vec![format!("t{n}")];
        sqlx::query("INSERT INTO book (author_id, title, tags) VALUES ($1, $2, $3)").bind(id).bind(format!("Notes {n}")).bind(tags).execute(&mut *transaction).await?;
    }
    transaction.commit().await?;
    let rows: Vec<(String, Vec<String>)> = sqlx::query_as("SELECT title, tags FROM book WHERE author_id = $1 ORDER BY id").bind(id).fetch_all(pool).await?;
    let refused = sqlx::query("INSERT INTO author (name) VALUES ('Ada')").execute(pool).await.unwrap_err();
    let database = refused.as_database_error().ok_or("no database error")?;
    Ok(format!("{rows:?} {:?} {:?}", database.code(), database.constraint()))
}

fn tell(name: &str, said: Said) {
    let name = name.replace(" = ", "=");
    match said {
        Ok(said) => println!("ok      sqlx: {name} = {}", said.replace('\n', " ")),
        Err(error) => println!("FAILED  sqlx: {name} (line {}", error.to_string().replace('\n', " ")),
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let options = PgConnectOptions::new_without_pgpass().host("127.0.0.1").port(arguments[1].parse().expect("a port")).username("postgres").database("postgres");
    let pool = PgPoolOptions::new().max_connections(2).connect_with(options).await.expect("a connection");
    for statement in SCHEMA {
        tell(&statement[..20], pool.execute(statement).await.map(|_| String::new()).map_err(Into::into));
    }
    for statement in DESCRIBED {
        tell(statement, describe(&pool, statement).await);
    }
    tell("migrations", migrate(&pool, PathBuf::from(&arguments[2]).join("sqlx-migrations")).await);
    tell("queries", queries(&pool).await);
}
