// Sequelize against a server: models are synchronised, altered and used. Called by e2e/tools with the port.
const { DataTypes, Op, Sequelize } = require("sequelize");
const { run } = require("./steps");

const sequelize = new Sequelize("postgres", "postgres", "", { host: "127.0.0.1", port: Number(process.argv[2]), dialect: "postgres", logging: false });
const User = sequelize.define(
  "User",
  {
    name: { type: DataTypes.STRING(40), allowNull: false, unique: true },
    age: { type: DataTypes.INTEGER, defaultValue: 3 },
    tags: DataTypes.ARRAY(DataTypes.STRING(20)),
    big: DataTypes.BIGINT,
    worth: DataTypes.DECIMAL(10, 2),
    active: DataTypes.BOOLEAN,
    born: DataTypes.DATEONLY,
    code: DataTypes.UUID,
    about: DataTypes.JSON,
  },
  { timestamps: false, indexes: [{ fields: ["age", "name"] }] },
);
const Post = sequelize.define("Post", { title: DataTypes.TEXT }, { timestamps: false });
User.hasMany(Post);
Post.belongsTo(User);
const queries = sequelize.getQueryInterface();
const plain = (rows) => rows.map((row) => row.get({ plain: true }));

run("sequelize", [
  ["authenticate", () => sequelize.authenticate()],
  ["sync", () => void 0 ?? sequelize.sync().then(() => undefined)],
  ["sync --force", () => sequelize.sync({ force: true }).then(() => undefined)],
  ["sync --alter", () => sequelize.sync({ alter: true }).then(() => undefined)],
  ["create", async () => {
    const user = await User.create({ name: "Ada", tags: ["x", "y z"], worth: "1.5", big: "9007199254740993", active: true, born: "1815-12-10", code: "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", about: { a: [1] } });
    await Post.create({ title: "Notes", UserId: user.id });
    return plain([user]);
  }],
  ["bulkCreate", async () => plain(await User.bulkCreate([{ name: "Grace" }, { name: "Joan", age: 7 }], { returning: true }))],
  ["upsert", async () => { const [row] = await User.upsert({ name: "Ada", age: 5 }); return row.age; }],
  ["findAll with include", async () => plain(await User.findAll({ include: Post, where: { age: { [Op.gte]: 1 } }, order: ["name"], limit: 2 })).map((u) => [u.name, u.Posts.length])],
  ["findAndCountAll", async () => (await User.findAndCountAll({ include: Post, distinct: true })).count],
  ["operators", async () => User.count({ where: { [Op.or]: [{ name: { [Op.iLike]: "a%" } }, { tags: { [Op.contains]: ["q"] } }, { age: { [Op.in]: [7, 8] } }] } })],
  ["aggregates", async () => [await User.max("age"), await User.sum("age"), await User.count({ group: ["age"] }).then((rows) => rows.length)]],
  ["update", async () => (await User.update({ age: 9 }, { where: { name: "Grace" }, returning: true }))[0]],
  ["increment", async () => { await User.increment("age", { where: { name: "Grace" } }); return (await User.findOne({ where: { name: "Grace" } })).age; }],
  ["transaction", () => sequelize.transaction({ isolationLevel: "SERIALIZABLE" }, async (transaction) => { await User.create({ name: "Mary" }, { transaction }); return User.count({ transaction, lock: undefined }); })],
  ["lock", () => sequelize.transaction(async (transaction) => (await User.findOne({ where: { name: "Ada" }, lock: transaction.LOCK.UPDATE, skipLocked: true, transaction })).name)],
  ["destroy", async () => User.destroy({ where: { name: "Joan" } })],
  ["showAllTables", async () => (await queries.showAllTables()).map((table) => table.tableName ?? table).sort()],
  ["describeTable", () => queries.describeTable("Users")],
  ["showIndex", async () => (await queries.showIndex("Users")).map((i) => [i.name, i.unique, i.primary, i.fields.map((f) => f.attribute)])],
  ["foreign keys", async () => (await queries.getForeignKeyReferencesForTable("Posts")).map((k) => [k.columnName, k.referencedTableName, k.referencedColumnName])],
  ["showConstraint", async () => (await queries.showConstraint("Users")).map((c) => [c.constraintName.replace(/^\d+_\d+_/, ""), c.constraintType]).sort()],
  ["addColumn", () => queries.addColumn("Users", "extra", { type: DataTypes.STRING, defaultValue: "x" }).then(() => undefined)],
  ["changeColumn", () => queries.changeColumn("Users", "extra", { type: DataTypes.TEXT, allowNull: false, defaultValue: "y" }).then(() => undefined)],
  ["renameColumn", () => queries.renameColumn("Users", "extra", "other").then(() => undefined)],
  ["addIndex and removeIndex", async () => { await queries.addIndex("Users", ["other"], { name: "by_other", where: { age: 3 } }); await queries.removeIndex("Users", "by_other"); }],
  ["addConstraint", () => queries.addConstraint("Users", { fields: ["age"], type: "check", name: "grown", where: { age: { [Op.gt]: 0 } } }).then(() => undefined)],
  ["removeConstraint", () => queries.removeConstraint("Users", "grown").then(() => undefined)],
  ["removeColumn", () => queries.removeColumn("Users", "other").then(() => undefined)],
  ["truncate", () => Post.truncate({ cascade: true, restartIdentity: true }).then(() => undefined)],
  ["findOrCreate", async () => { const [row, made] = await User.findOrCreate({ where: { name: "Edith" } }); return [row.name, made]; }],
  ["drop", () => sequelize.drop().then(() => undefined)],
  ["enum", async () => { const Mood = sequelize.define("Mood", { m: DataTypes.ENUM("ok", "sad") }); await Mood.sync(); }],
]);
