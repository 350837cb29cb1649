"""Runs asyncpg, SQLAlchemy 2 on it, and Alembic against a server. e2e/tools calls this program with the
port."""

import asyncio
import datetime
import decimal
import io
import os
import shutil
import sys
import tempfile
import uuid

import asyncpg
import sqlalchemy as sa
from sqlalchemy.dialects import postgresql
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from sqlalchemy.ext.asyncio import async_sessionmaker, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, relationship, selectinload

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import steps  # noqa: E402

PORT = int(sys.argv[1])
URL = f"postgresql+asyncpg://postgres@127.0.0.1:{PORT}/postgres"
FOLDER = tempfile.mkdtemp()


class Base(DeclarativeBase):
    pass


class Author(Base):
    __tablename__ = "author"
    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(sa.String(40), unique=True)
    born: Mapped[datetime.date | None] = mapped_column(index=True)
    books: Mapped[list["Book"]] = relationship(back_populates="author", cascade="all, delete-orphan", order_by="Book.id")


class Book(Base):
    __tablename__ = "book"
    id: Mapped[int] = mapped_column(sa.BigInteger, sa.Identity(always=True), primary_key=True)
    author_id: Mapped[int] = mapped_column(sa.ForeignKey("author.id", ondelete="CASCADE"))
    title: Mapped[str] = mapped_column(sa.Text, comment="what it is called")
    price: Mapped[decimal.Decimal] = mapped_column(sa.Numeric(8, 2), server_default="9.99")
    at: Mapped[datetime.datetime] = mapped_column(sa.DateTime(timezone=True), server_default=sa.func.now())
    code: Mapped[uuid.UUID | None]
    tags: Mapped[list[str] | None] = mapped_column(postgresql.ARRAY(sa.String(10)))
    about: Mapped[dict | None] = mapped_column(sa.JSON)
    cover: Mapped[bytes | None]
    weight: Mapped[float | None] = mapped_column(sa.Double)
    author: Mapped[Author] = relationship(back_populates="books")
    __table_args__ = (
        sa.CheckConstraint("price > 0", name="price_positive"),
        sa.UniqueConstraint("author_id", "title", name="title_once"),
        sa.Index("book_lower", sa.text("lower(title)")),
        sa.Index("book_dear", "price", postgresql_where=sa.text("price > 100")),
    )


def driver():
    """asyncpg: types both ways, a prepared statement, a cursor, COPY, a transaction"""

    async def use():
        c = await asyncpg.connect(host="127.0.0.1", port=PORT, user="postgres", database="postgres")
        await c.execute("CREATE TABLE raw (id serial PRIMARY KEY, a int, b text, c numeric, d timestamptz, e text[], f uuid, g float8, h date, i interval, j bytea, k json, l bool)")
        row = [1, "x", decimal.Decimal("1.50"), datetime.datetime(2024, 2, 29, 12, tzinfo=datetime.UTC), ["p", None], uuid.UUID(int=5), 0.5]
        row += [datetime.date(2024, 1, 1), datetime.timedelta(days=1, seconds=5), b"\x00\xff", '{"a": 1}', True]
        made = await c.fetchrow(f"INSERT INTO raw (a,b,c,d,e,f,g,h,i,j,k,l) VALUES ({','.join(f'${n}' for n in range(1, 13))}) RETURNING *", *row)
        assert list(made)[1:] == row, list(made)
        await c.executemany("INSERT INTO raw (a, b) VALUES ($1, $2)", [(n, f"r{n}") for n in range(20)])
        statement = await c.prepare("SELECT a, b FROM raw WHERE a = ANY($1::int[]) AND b LIKE $2 ORDER BY a")
        found = [tuple(r) for r in await statement.fetch([3, 4, 5], "r%")]
        async with c.transaction():
            found.append([r["a"] async for r in c.cursor("SELECT a FROM raw ORDER BY id LIMIT 3", prefetch=2)])
        copied = await c.copy_records_to_table("raw", records=[(100, "copied")], columns=["a", "b"])
        out = io.BytesIO()
        await c.copy_from_query("SELECT a, b FROM raw WHERE a >= $1", 100, output=out)
        found += [copied, out.getvalue()]
        try:
            async with c.transaction():
                await c.execute("DELETE FROM raw")
                await c.execute("INSERT INTO raw (id) VALUES (1), (1)")
        except asyncpg.UniqueViolationError as error:
            found.append([error.constraint_name, error.detail])
        found.append(await c.fetchval("SELECT count(*) FROM raw"))
        found += [[a.name, a.type.name] for a in statement.get_attributes()] + [[p.name for p in statement.get_parameters()]]
        await c.execute("DROP TABLE raw")
        await c.close()
        return found

    return asyncio.run(use())


def orm():
    """SQLAlchemy on asyncpg: tables, sessions, queries, upsert, streaming"""

    async def use():
        engine = create_async_engine(URL)
        sessions = async_sessionmaker(engine, expire_on_commit=False)
        async with engine.begin() as connection:
            await connection.run_sync(Base.metadata.drop_all)
            await connection.run_sync(Base.metadata.create_all)
        async with sessions() as session:
            ada = Author(name="Ada", born=datetime.date(1815, 12, 10))
            ada.books = [Book(title=f"Notes {n}", price=decimal.Decimal(n + 1), tags=["a", "b"], about={"n": n}, code=uuid.UUID(int=n), cover=bytes([n])) for n in range(3)]
            session.add_all([ada, Author(name="Grace", books=[Book(title="Compilers", weight=1.5)]), Author(name="Nobody")])
            await session.commit()
        async with sessions() as session:
            found = [[a.name, [(b.title, b.price, b.tags, b.about) for b in a.books]] for a in await session.scalars(sa.select(Author).options(selectinload(Author.books)).order_by(Author.name))]
            counted = sa.select(Author.name, sa.func.count(Book.id), sa.func.sum(Book.price)).outerjoin(Book).group_by(Author.name).order_by(Author.name)
            found += [tuple(r) for r in await session.execute(counted)]
            upsert = postgresql.insert(Author).values(name="Ada", born=None)
            found.append((await session.execute(upsert.on_conflict_do_update(index_elements=["name"], set_={"born": upsert.excluded.born}).returning(Author.born))).scalar())
            found.append((await session.execute(sa.update(Book).where(Book.tags.contains(["a"])).values(price=Book.price + 1).returning(Book.price))).scalars().all())
            async with session.begin_nested() as inner:
                await session.execute(sa.delete(Book))
                await inner.rollback()
            found.append(await session.scalar(sa.select(sa.func.count()).select_from(Book)))
            found.append([b.title async for b in await session.stream_scalars(sa.select(Book).order_by(Book.id).limit(2).with_for_update(skip_locked=True))])
            await session.delete(await session.get(Author, 1, options=[selectinload(Author.books)]))
            await session.commit()
            found.append(await session.scalar(sa.select(sa.func.count()).select_from(Book)))
        await engine.dispose()
        return found

    return asyncio.run(use())


def sync(act):
    async def use():
        engine = create_async_engine(URL)
        async with engine.begin() as connection:
            said = await connection.run_sync(act)
        await engine.dispose()
        return said

    return asyncio.run(use())


def reflect():
    """SQLAlchemy on asyncpg: reflection"""

    def act(connection):
        inspector = sa.inspect(connection)
        said = []
        for table in ("author", "book"):
            said.append([(c["name"], str(c["type"]), c["nullable"], c["default"], c.get("comment")) for c in inspector.get_columns(table)])
            said += [inspector.get_pk_constraint(table), inspector.get_foreign_keys(table), inspector.get_check_constraints(table)]
            said += [sorted(inspector.get_unique_constraints(table), key=str), sorted(inspector.get_indexes(table), key=str)]
        return said + [inspector.get_table_names(), inspector.get_view_names(), inspector.get_schema_names(), inspector.get_sequence_names()]

    return sync(act)


def no_difference():
    """Alembic: autogenerate finds no difference to what was created"""
    options = {"compare_type": True, "compare_server_default": True}
    return sync(lambda connection: compare_metadata(MigrationContext.configure(connection, opts=options), Base.metadata))


ENV = """
import asyncio
from alembic import context
import __main__ as program
def act(connection):
    context.configure(connection=connection, target_metadata=program.Base.metadata, compare_type=True, compare_server_default=True)
    with context.begin_transaction():
        context.run_migrations()
program.sync(act)
"""


TEMPLATE = """
from alembic import op
import sqlalchemy as sa
${imports if imports else ""}
revision = ${repr(up_revision)}
down_revision = ${repr(down_revision)}
def upgrade() -> None:
    ${upgrades if upgrades else "pass"}
def downgrade() -> None:
    ${downgrades if downgrades else "pass"}
"""


def configuration():
    made = Config(stdout=io.StringIO())
    made.set_main_option("script_location", os.path.join(FOLDER, "scripts"))
    made.set_main_option("path_separator", "os")
    return made


def revision():
    """Alembic: the first revision, by autogenerate, on an empty database"""
    sync(Base.metadata.drop_all)
    os.makedirs(os.path.join(FOLDER, "scripts", "versions"))
    for name, text in (("env.py", ENV), ("script.py.mako", TEMPLATE)):
        with open(os.path.join(FOLDER, "scripts", name), "w") as file:
            file.write(text)
    script = command.revision(configuration(), "first", autogenerate=True, rev_id="a1")
    with open(script.path) as file:
        return sum("op." in line for line in file)


def upgrade():
    """Alembic: upgrade to head, and check finds nothing new"""
    command.upgrade(configuration(), "head")
    command.check(configuration())
    return no_difference()


def second():
    """Alembic: a second revision adds, alters, renames; up, down, up"""
    script = command.revision(configuration(), "second", rev_id="a2")
    with open(script.path) as file:
        text = file.read()
    up = """
    op.add_column("author", sa.Column("rank", sa.SmallInteger(), server_default="3", nullable=False))
    op.alter_column("book", "title", type_=sa.String(200), existing_type=sa.Text(), nullable=True)
    op.alter_column("author", "name", new_column_name="called")
    op.create_check_constraint("ranked", "author", "rank > 0")
    op.create_index("by_rank", "author", [sa.text("rank DESC"), "called"])
    op.create_table_comment("author", "who writes")
    op.execute("INSERT INTO author (called) VALUES ('Ada')")
    op.rename_table("book", "volume")
"""
    down = """
    op.rename_table("volume", "book")
    op.execute("DELETE FROM author")
    op.drop_table_comment("author")
    op.drop_index("by_rank", "author")
    op.drop_constraint("ranked", "author")
    op.alter_column("author", "called", new_column_name="name")
    op.alter_column("book", "title", type_=sa.Text(), existing_type=sa.String(200), nullable=False)
    op.drop_column("author", "rank")
"""
    head, _, _ = text.partition("def upgrade()")
    with open(script.path, "w") as file:
        file.write(f"{head}def upgrade() -> None:{up}\n\ndef downgrade() -> None:{down}")
    for move in (lambda: command.upgrade(configuration(), "head"), lambda: command.downgrade(configuration(), "-1")):
        move()
    said = no_difference()
    command.upgrade(configuration(), "head")
    return said


def base():
    """Alembic: downgrade to base"""
    command.downgrade(configuration(), "base")
    shutil.rmtree(FOLDER)
    return sync(lambda connection: sa.inspect(connection).get_table_names())


steps.run([driver, orm, reflect, no_difference, revision, upgrade, second, base])
