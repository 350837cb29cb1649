// node-pg-migrate against a server: migrations forth and back. Called by e2e/tools with the port.
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { runner } from "node-pg-migrate";
import pg from "pg";
import steps from "./steps.js";

const folder = mkdtempSync(join(process.argv[3], "migrations-"));
const first = `
exports.up = (pgm) => {
  pgm.createTable("users", { id: "id", name: { type: "varchar(100)", notNull: true }, created: { type: "timestamp", notNull: true, default: pgm.func("current_timestamp") } });
  pgm.createTable("posts", { id: { type: "bigint", sequenceGenerated: { precedence: "ALWAYS" }, primaryKey: true }, user_id: { type: "integer", notNull: true, references: '"users"', onDelete: "cascade" }, body: { type: "text", comment: "what it says" } });
  pgm.createIndex("posts", "user_id");
};`;
const second = `
exports.up = (pgm) => {
  pgm.addColumns("posts", { score: { type: "numeric(5,2)", default: 0, check: "score >= 0" } });
  pgm.alterColumn("users", "name", { type: "text", default: "nobody" });
  pgm.renameColumn("posts", "body", "content");
  pgm.addConstraint("users", "users_name_once", { unique: ["name"] });
  pgm.createView("everything", {}, "SELECT u.name, p.content FROM users u JOIN posts p ON p.user_id = u.id");
  pgm.sql("INSERT INTO users (name) VALUES ('Ada')");
};
exports.down = (pgm) => {
  pgm.dropView("everything");
  pgm.dropConstraint("users", "users_name_once");
  pgm.renameColumn("posts", "content", "body");
  pgm.dropColumns("posts", ["score"]);
};`;
writeFileSync(join(folder, "1700000000001_first.js"), first);
writeFileSync(join(folder, "1700000000002_second.js"), second);
const quiet = () => {};
const options = {
  databaseUrl: { host: "127.0.0.1", port: Number(process.argv[2]), user: "postgres", database: "postgres" },
  dir: folder, migrationsTable: "pgmigrations", log: quiet, logger: { debug: quiet, info: quiet, warn: quiet, error: quiet },
};
const names = (done) => done.map((one) => one.name);
const go = (direction, count) => runner({ ...options, direction, count }).then(names);
const ask = async (sql) => {
  const client = new pg.Client(options.databaseUrl);
  await client.connect();
  const { rows } = await client.query(sql);
  await client.end();
  return rows;
};
process.on("exit", () => rmSync(folder, { recursive: true }));
steps.run("node-pg-migrate", [
  ["up", () => go("up", Infinity)],
  ["what is there", () => ask("SELECT name, (SELECT count(*) FROM pgmigrations) AS done FROM users")],
  ["up again", () => go("up", Infinity)],
  ["down one", () => go("down", 1)],
  ["down the rest", () => go("down", Infinity)],
  ["up again from nothing", () => go("up", Infinity)],
  ["columns", () => ask("SELECT column_name, data_type, is_nullable FROM information_schema.columns WHERE table_schema = 'public' AND table_name = 'posts' ORDER BY ordinal_position")],
]);
