"""Runs SQLAlchemy against a server: create, use, reflect, query, drop. e2e/tools calls this program with the
port."""

import datetime
import decimal
import os
import sys

import sqlalchemy as sa
from sqlalchemy import orm

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import steps  # noqa: E402


class Base(orm.DeclarativeBase):
    pass


class Author(Base):
    __tablename__ = "author"
    id = orm.mapped_column(sa.Integer, primary_key=True)
    name = orm.mapped_column(sa.String(40), nullable=False, unique=True)
    born = orm.mapped_column(sa.Date, index=True)
    books = orm.relationship("Book", back_populates="author", cascade="all, delete-orphan", order_by="Book.id")


class Book(Base):
    __tablename__ = "book"
    id = orm.mapped_column(sa.BigInteger, sa.Identity(always=True), primary_key=True)
    author_id = orm.mapped_column(sa.ForeignKey("author.id", ondelete="CASCADE"), nullable=False)
    title = orm.mapped_column(sa.Text, nullable=False)
    price = orm.mapped_column(sa.Numeric(8, 2), server_default="9.99")
    at = orm.mapped_column(sa.DateTime(timezone=True), server_default=sa.func.now())
    sold = orm.mapped_column(sa.Boolean, default=False)
    weight = orm.mapped_column(sa.Double)
    author = orm.relationship("Author", back_populates="books")
    __table_args__ = (
        sa.CheckConstraint("price > 0", name="price_positive"),
        sa.UniqueConstraint("author_id", "title", name="title_once"),
        sa.Index("book_title", "title", "id"),
    )


def create(engine):
    """SQLAlchemy: drop and create all tables"""
    Base.metadata.drop_all(engine)
    Base.metadata.create_all(engine)
    Base.metadata.create_all(engine)


def add(engine):
    """SQLAlchemy: a session adds objects and their children"""
    with orm.Session(engine) as session:
        ada = Author(name="Ada", born=datetime.date(1815, 12, 10))
        ada.books = [Book(title="Notes", price=decimal.Decimal("12.50")), Book(title="Letters", weight=0.25)]
        session.add_all([ada, Author(name="Grace", books=[Book(title="Compilers", sold=True)]), Author(name="Nobody")])
        session.commit()
        assert {b.title: b.price for b in ada.books} == {"Notes": decimal.Decimal("12.50"), "Letters": decimal.Decimal("9.99")}, ada.books


def query(engine):
    """SQLAlchemy: joins, groups, subqueries, windows, loading"""
    with orm.Session(engine) as session:
        counted = sa.select(Author.name, sa.func.count(Book.id)).outerjoin(Book).group_by(Author.name).order_by(Author.name)
        assert session.execute(counted).all() == [("Ada", 2), ("Grace", 1), ("Nobody", 0)]
        writers = sa.select(Author.name).where(Author.books.any(Book.sold)).order_by(Author.name)
        assert session.scalars(writers).all() == ["Grace"]
        average = sa.select(sa.func.avg(Book.price)).scalar_subquery()
        assert session.scalars(sa.select(Book.title).where(Book.price > average)).all() == ["Notes"]
        loaded = session.scalars(sa.select(Author).options(orm.selectinload(Author.books)).order_by(Author.id)).all()
        assert [len(author.books) for author in loaded] == [2, 1, 0]
        joined = session.scalars(sa.select(Author).options(orm.joinedload(Author.books)).order_by(Author.id)).unique().all()
        assert [len(author.books) for author in joined] == [2, 1, 0]
        numbered = sa.select(Book.title, sa.func.row_number().over(partition_by=Book.author_id, order_by=Book.title)).order_by(Book.title)
        assert session.execute(numbered).all() == [("Compilers", 1), ("Letters", 1), ("Notes", 2)]
        named = sa.select(Author.name).where(Author.name.in_(["Ada", "Grace"])).order_by(sa.desc(Author.name)).limit(1)
        assert session.scalars(named).one() == "Grace"


def cte_and_union(engine):
    """SQLAlchemy: WITH, UNION, CASE, EXISTS"""
    with engine.connect() as connection:
        totals = sa.select(Book.author_id, sa.func.sum(Book.price).label("total")).group_by(Book.author_id).cte("totals")
        rows = connection.execute(sa.select(Author.name, totals.c.total).join(totals, totals.c.author_id == Author.id).order_by(Author.name)).all()
        assert rows == [("Ada", decimal.Decimal("22.49")), ("Grace", decimal.Decimal("9.99"))], rows
        both = sa.union_all(sa.select(Author.name), sa.select(Book.title)).order_by("name")
        assert len(connection.execute(both).all()) == 6
        kind = sa.case((Book.price > 10, "dear"), else_="cheap")
        assert connection.scalars(sa.select(kind).order_by(Book.id)).all() == ["dear", "cheap", "cheap"]
        assert connection.scalar(sa.select(sa.exists().where(Author.name == "Ada"))) is True


def change(engine):
    """SQLAlchemy: update, delete, cascade, ON CONFLICT"""
    from sqlalchemy.dialects.postgresql import insert

    with orm.Session(engine) as session:
        grace = session.scalars(sa.select(Author).where(Author.name == "Grace")).one()
        grace.born = datetime.date(1906, 12, 9)
        session.commit()
        session.execute(sa.update(Book).where(Book.sold).values(price=Book.price * 2))
        session.execute(sa.delete(Author).where(Author.name == "Nobody"))
        statement = insert(Author).values(id=grace.id, name="Grace H.")
        session.execute(statement.on_conflict_do_update(index_elements=["id"], set_={"name": statement.excluded.name}))
        session.commit()
        assert session.scalars(sa.select(Author.name).order_by(Author.name)).all() == ["Ada", "Grace H."]


def fail(engine):
    """SQLAlchemy: integrity errors, savepoints"""
    with orm.Session(engine) as session:
        session.add(Author(name="Ada"))
        try:
            session.commit()
            raise AssertionError("no error")
        except sa.exc.IntegrityError:
            session.rollback()
        session.add(Author(name="Kept"))
        session.flush()
        try:
            with session.begin_nested():
                session.execute(sa.insert(Book).values(author_id=999, title="x"))
            raise AssertionError("no error")
        except sa.exc.IntegrityError:
            pass
        session.commit()
        assert session.scalar(sa.select(sa.func.count()).select_from(Author)) == 3


def inspect(engine):
    """SQLAlchemy: the inspector's view of tables, columns, keys, indexes, checks"""
    found = sa.inspect(engine)
    assert {"author", "book"} <= set(found.get_table_names()), found.get_table_names()
    assert found.has_table("book") and not found.has_table("nothing")
    columns = {column["name"]: column for column in found.get_columns("book")}
    assert isinstance(columns["price"]["type"], sa.NUMERIC) and columns["price"]["type"].scale == 2, columns["price"]
    assert columns["id"]["identity"]["always"] is True, columns["id"]
    assert columns["title"]["nullable"] is False and columns["sold"]["nullable"] is True
    assert found.get_pk_constraint("book")["constrained_columns"] == ["id"]
    (key,) = found.get_foreign_keys("book")
    assert (key["referred_table"], key["referred_columns"], key["options"]) == ("author", ["id"], {"ondelete": "CASCADE"}), key
    assert [each["name"] for each in found.get_unique_constraints("book")] == ["title_once"]
    assert [each["name"] for each in found.get_check_constraints("book")] == ["price_positive"]
    indexes = {index["name"]: index["column_names"] for index in found.get_indexes("book")}
    assert indexes["book_title"] == ["title", "id"], indexes
    assert "public" in found.get_schema_names()
    assert found.get_view_names() == [] and found.get_table_comment("book") == {"text": None}


def reflect(engine):
    """SQLAlchemy: a reflected schema equals the declared one, and can be used"""
    metadata = sa.MetaData()
    metadata.reflect(engine)
    book = metadata.tables["book"]
    assert [column.name for column in book.columns] == [column.name for column in Book.__table__.columns]
    assert {key.target_fullname for key in book.foreign_keys} == {"author.id"}
    with engine.connect() as connection:
        assert connection.scalar(sa.select(sa.func.count()).select_from(book)) == 3


def drop(engine):
    """SQLAlchemy: drop all tables"""
    Base.metadata.drop_all(engine)
    assert "book" not in sa.inspect(engine).get_table_names()


def main():
    engine = sa.create_engine(f"postgresql+psycopg://postgres@127.0.0.1:{sys.argv[1]}/postgres")
    steps.run([create, add, query, cte_and_union, change, fail, inspect, reflect, drop], engine)


if __name__ == "__main__":
    main()
