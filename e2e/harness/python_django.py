"""Runs Django against a server: all contrib applications are migrated, flushed and filled from a fixture, and
models are used. e2e/tools calls this program."""

import datetime
import decimal
import io
import json
import os
import sys
import tempfile

import django
from django.apps import AppConfig
from django.conf import settings
from django.core.management import call_command

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import steps  # noqa: E402

APPS = ["auth", "contenttypes", "sessions", "messages", "sites", "flatpages", "redirects", "staticfiles", "postgres"]
DATABASE = {"ENGINE": "django.db.backends.postgresql", "NAME": "postgres", "USER": "postgres", "HOST": "127.0.0.1", "PORT": sys.argv[1]}


class E2e(AppConfig):
    """The application of this program's own models."""

    name, label, path = "__main__", "e2e", os.path.dirname(os.path.abspath(__file__))


settings.configure(
    DATABASES={"default": DATABASE},
    INSTALLED_APPS=[f"django.contrib.{app}" for app in APPS] + ["django.contrib.admin.apps.SimpleAdminConfig", "__main__.E2e"],
    TEMPLATES=[{"BACKEND": "django.template.backends.django.DjangoTemplates"}],
    SITE_ID=1,
    USE_TZ=True,
    SECRET_KEY="not one",
    SILENCED_SYSTEM_CHECKS=["admin.E402", "admin.E403", "admin.E404", "admin.E408", "admin.E409", "admin.E410"],
    DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
)
django.setup()

from django.contrib.auth.models import Group, Permission, User  # noqa: E402
from django.contrib.sessions.backends.db import SessionStore  # noqa: E402
from django.contrib.sites.models import Site  # noqa: E402
from django.db import IntegrityError, connection, models, transaction  # noqa: E402
from django.db.models import Count, F, Max, OuterRef, Q, Subquery, Value, Window  # noqa: E402
from django.db.models.functions import Coalesce, Concat, Lower, RowNumber, TruncMonth, Upper  # noqa: E402

FIXTURE = os.path.join(tempfile.mkdtemp(), "fixture.json")


class Author(models.Model):
    name = models.CharField(max_length=40, unique=True)
    born = models.DateField(null=True, db_index=True)

    class Meta:
        app_label = "e2e"


class Book(models.Model):
    author = models.ForeignKey(Author, models.CASCADE, related_name="books")
    title = models.CharField(max_length=200)
    price = models.DecimalField(max_digits=8, decimal_places=2, default=decimal.Decimal("9.99"))
    at = models.DateTimeField()
    about = models.TextField(blank=True)
    code = models.UUIDField(null=True)
    length = models.DurationField(null=True)
    cover = models.BinaryField(null=True)
    count = models.PositiveIntegerField(default=0)
    weight = models.FloatField(null=True)
    tags = models.ManyToManyField("self")

    class Meta:
        app_label = "e2e"
        constraints = [
            models.CheckConstraint(condition=Q(price__gt=0), name="price_positive"),
            models.UniqueConstraint(Lower("title"), "author", name="title_once"),
            models.UniqueConstraint(fields=["code"], condition=Q(count__gt=0), name="code_once"),
        ]
        indexes = [models.Index(fields=["-at", "title"], name="book_at"), models.Index(Upper("title"), name="book_upper")]


class Later(models.Model):
    name = models.TextField()

    class Meta:
        app_label = "e2e"


def migrate():
    """Django: migrate all contrib applications"""
    call_command("migrate", verbosity=0)
    return len(connection.introspection.table_names())


def check():
    """Django: check --database; no migration is left to make"""
    call_command("check", databases=["default"])
    call_command("makemigrations", "--check", "--dry-run", verbosity=0)


def fill():
    """Django: users, groups, permissions, a session, a site"""
    user = User.objects.create_superuser("ada", "ada@example.org", "secret")
    group = Group.objects.create(name="editors")
    group.permissions.set(Permission.objects.filter(codename__startswith="add_"))
    user.groups.add(group)
    session = SessionStore()
    session["n"] = 1
    session.save()
    Site.objects.create(domain="example.org", name="example")
    assert User.objects.get(username="ada").has_perm("auth.add_user")
    return [Permission.objects.count(), group.permissions.count(), Site.objects.count()]


def dump():
    """Django: dumpdata"""
    call_command("dumpdata", "auth", "sites", "contenttypes", natural_foreign=True, natural_primary=True, output=FIXTURE)
    with open(FIXTURE) as file:
        return len(json.load(file))


def flush():
    """Django: flush"""
    call_command("flush", interactive=False, verbosity=0)
    return [User.objects.count(), Site.objects.count()]


def load():
    """Django: loaddata, and sequences that go on behind it"""
    call_command("loaddata", FIXTURE, verbosity=0)
    return [User.objects.count(), Group.objects.create(name="after").pk > 1, Site.objects.create(domain="b", name="b").pk]


def sequences():
    """Django: sqlsequencereset"""
    out = io.StringIO()
    call_command("sqlsequencereset", "auth", "sites", stdout=out, no_color=True)
    with connection.cursor() as cursor:
        cursor.execute(out.getvalue())


def inspect():
    """Django: inspectdb"""
    out = io.StringIO()
    call_command("inspectdb", "auth_user", "auth_permission", "django_session", stdout=out)
    return out.getvalue()


def create():
    """Django: tables with constraints and indexes by the schema editor"""
    with connection.schema_editor() as editor:
        editor.create_model(Author)
        editor.create_model(Book)


def crud():
    """Django: objects are made, changed, found, deleted"""
    at = datetime.datetime(2024, 2, 29, 12, tzinfo=datetime.UTC)
    ada, grace = Author.objects.create(name="Ada", born=datetime.date(1815, 12, 10)), Author.objects.create(name="Grace")
    books = [Book(author=ada, title=f"Notes {n}", at=at + datetime.timedelta(days=20 * n), price=n + 1, length=datetime.timedelta(hours=n)) for n in range(5)]
    Book.objects.bulk_create([*books, Book(author=grace, title="Compilers", at=at, cover=b"\x00\xff")])
    Book.objects.bulk_create([Book(pk=books[0].pk, author=ada, title="Notes 0", at=at, price=77)], update_conflicts=True, unique_fields=["id"], update_fields=["price"])
    Book.objects.filter(author=ada).update(count=F("count") + 3, about=Concat("title", Value("!")))
    books[1].tags.add(books[2], books[3])
    some, made = Author.objects.update_or_create(name="Joan", defaults={"born": None})
    for book in (many := list(Book.objects.filter(title__startswith="Notes"))):
        book.weight = 1.5
    Book.objects.bulk_update(many, ["weight"])
    found = [
        list(Author.objects.annotate(n=Count("books"), dear=Max("books__price")).order_by("name").values_list("name", "n", "dear")),
        list(Book.objects.filter(Q(title__icontains="notes") & ~Q(price__lt=3)).order_by("-price").values_list("title", flat=True)[:3]),
        list(Book.objects.annotate(month=TruncMonth("at")).values("month").annotate(n=Count("id")).order_by("month").values_list("n", flat=True)),
        list(Book.objects.annotate(place=Window(RowNumber(), partition_by="author", order_by="title")).order_by("author", "place").values_list("place", flat=True)),
        list(Author.objects.annotate(last=Subquery(Book.objects.filter(author=OuterRef("pk")).order_by("-at").values("title")[:1])).order_by("name").values_list("last", flat=True)),
        Book.objects.aggregate(worth=Coalesce(Max("price"), decimal.Decimal(0)), n=Count("author", distinct=True)),
        Book.objects.filter(title__iregex=r"^notes [0-2]$", at__year=2024).count(),
        Book.objects.select_related("author").get(title="Compilers").author.name,
        [len(a.books.all()) for a in Author.objects.prefetch_related("books").order_by("name")],
        Book.objects.filter(pk__in=[b.pk for b in many]).union(Book.objects.filter(author=grace)).count(),
        made,
    ]
    with transaction.atomic():
        locked = Book.objects.select_for_update(skip_locked=True, of=("self",)).select_related("author").filter(author=ada).order_by("pk").first()
        found.append(locked.title)
    found.append(Author.objects.filter(name="Ada").delete()[0])
    return found


def errors():
    """Django: constraints refuse; a savepoint saves the transaction"""
    said = []
    with transaction.atomic():
        for make in (lambda: Author.objects.create(name="Grace"), lambda: Book.objects.create(author=Author.objects.get(name="Grace"), title="x", at=datetime.datetime.now(datetime.UTC), price=-1)):
            try:
                with transaction.atomic():
                    make()
            except IntegrityError as error:
                said.append(str(error).splitlines()[0])
        said.append(Author.objects.count())
    return said


def alter():
    """Django: fields are added, altered, renamed, removed; a table is renamed"""
    with connection.schema_editor() as editor:
        field = models.CharField(max_length=20, default="x")
        field.set_attributes_from_name("extra")
        editor.add_field(Author, field)
        wider = models.TextField(null=True, db_index=True)
        wider.set_attributes_from_name("extra")
        wider.model = Author
        editor.alter_field(Author, field, wider)
        number = models.IntegerField(default=4)
        number.set_attributes_from_name("extra")
        number.model = Author
    with connection.schema_editor() as editor:
        editor.remove_field(Author, wider)
        name = models.CharField(max_length=60)
        name.set_attributes_from_name("name")
        name.model = Author
        editor.alter_field(Author, Author._meta.get_field("name"), name)
        big = models.BigIntegerField(default=0)
        big.set_attributes_from_name("count")
        big.model = Book
        editor.alter_field(Book, Book._meta.get_field("count"), big)
        renamed = models.FloatField(null=True)
        renamed.set_attributes_from_name("mass")
        renamed.model = Book
        editor.alter_field(Book, Book._meta.get_field("weight"), renamed)
        editor.alter_db_table(Author, "e2e_author", "e2e_writer")
    with connection.cursor() as cursor:
        return [
            [(c.name, c.null_ok, c.default) for c in connection.introspection.get_table_description(cursor, "e2e_book")],
            sorted((k, [str(c) for c in v["columns"]], v["unique"], v["check"], str(v["foreign_key"])) for k, v in connection.introspection.get_constraints(cursor, "e2e_book").items()),
            connection.introspection.get_sequences(cursor, "e2e_book"),
        ]


def back():
    """Django: migrate back to zero, and forth"""
    for app in ("admin", "flatpages", "redirects", "sites", "sessions"):
        call_command("migrate", app, "zero", verbosity=0)
    call_command("migrate", verbosity=0)
    return len(connection.introspection.table_names())


steps.run([migrate, check, fill, dump, flush, load, sequences, inspect, create, crud, errors, alter, back])
