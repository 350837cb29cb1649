import jakarta.persistence.*;
import java.math.BigDecimal;
import java.time.*;
import java.util.*;
import org.hibernate.SessionFactory;
import org.hibernate.cfg.Configuration;

/** Hibernate 6 against a server: the schema is created, validated, updated; entities are used. Called by e2e/tools with the port. */
final class Hibernate {
    @Entity(name = "Author") @Table(name = "author", uniqueConstraints = @UniqueConstraint(name = "one_name", columnNames = "name"))
    static class Author {
        @Id @GeneratedValue(strategy = GenerationType.SEQUENCE) Long id;
        @Column(length = 40, nullable = false) String name;
        LocalDate born;
        @Enumerated(EnumType.STRING) Mood mood;
        @OneToMany(mappedBy = "author", cascade = CascadeType.ALL, orphanRemoval = true) @OrderBy("id") List<Book> books = new ArrayList<>();
        @Version int version;
    }

    enum Mood { GLAD, SAD }

    @Entity(name = "Book") @Table(name = "book", indexes = @Index(name = "book_title", columnList = "title, price"))
    static class Book {
        @Id @GeneratedValue(strategy = GenerationType.IDENTITY) Long id;
        @ManyToOne(optional = false) Author author;
        @Column(length = 2000) String title;
        @Column(precision = 8, scale = 2) BigDecimal price;
        OffsetDateTime at;
        LocalDateTime local;
        Duration length;
        UUID code;
        boolean sold;
        double weight;
        byte[] cover;
        String[] tags;
        @ElementCollection Set<String> words = new TreeSet<>();
    }

    @Entity(name = "LaterAuthor") @Table(name = "author")
    static class LaterAuthor {
        @Id @GeneratedValue(strategy = GenerationType.SEQUENCE) @SequenceGenerator(name = "author_SEQ", sequenceName = "author_SEQ") Long id;
        @Column(length = 40, nullable = false) String name;
        @Column(length = 20) String nickname;
        @ManyToMany List<Shelf> shelves = new ArrayList<>();
    }

    @Entity(name = "Shelf") @Table(name = "shelf")
    static class Shelf {
        @Id @GeneratedValue(strategy = GenerationType.UUID) UUID id;
        @Column(length = 100_000) String notes;
        int place;
    }

    @Entity(name = "Scroll") @Table(name = "scroll")
    static class Scroll {
        @Id @GeneratedValue Long id;
        @Lob String text;
    }

    static SessionFactory factory(String port, String mode, Class<?>... entities) {
        Configuration configuration = new Configuration();
        configuration.setProperty("hibernate.connection.url", "jdbc:postgresql://127.0.0.1:" + port + "/postgres");
        configuration.setProperty("hibernate.connection.username", "postgres");
        configuration.setProperty("hibernate.hbm2ddl.auto", mode);
        configuration.setProperty("hibernate.hbm2ddl.halt_on_error", "true");
        configuration.setProperty("hibernate.jdbc.batch_size", "10");
        configuration.setProperty("hibernate.jdbc.time_zone", "UTC");
        for (Class<?> entity : entities) configuration.addAnnotatedClass(entity);
        return configuration.buildSessionFactory();
    }

    static Object used(SessionFactory factory) {
        factory.inTransaction(session -> {
            Author ada = new Author();
            ada.name = "Ada"; ada.born = LocalDate.of(1815, 12, 10); ada.mood = Mood.GLAD;
            for (int n = 0; n < 12; n++) {
                Book book = new Book();
                book.author = ada; book.title = "Notes " + n; book.price = new BigDecimal("12.50").add(BigDecimal.valueOf(n));
                book.at = OffsetDateTime.of(2024, 2, 29, 12, 0, 0, 123456000, ZoneOffset.UTC); book.local = LocalDateTime.of(2024, 3, 1, 8, 0);
                book.length = Duration.ofMinutes(90); book.code = new UUID(1, n); book.cover = new byte[] {1, 2, 0, (byte) 255};
                book.tags = new String[] {"a", "b c", null}; book.words.addAll(List.of("x", "y"));
                ada.books.add(book);
            }
            session.persist(ada);
        });
        return factory.fromTransaction(session -> {
            List<Object> said = new ArrayList<>();
            Author ada = session.createQuery("from Author a join fetch a.books where a.name = :n", Author.class).setParameter("n", "Ada").getSingleResult();
            Book book = ada.books.get(0);
            said.add(List.of(ada.born, ada.mood, ada.books.size(), book.price, book.at.toInstant(), book.local, book.length, book.code, Arrays.toString(book.cover), Arrays.toString(book.tags), List.copyOf(book.words)));
            said.add(session.createQuery("select b.author.name, count(*), sum(b.price), max(extract(year from b.at)) from Book b group by b.author.name", Object[].class).getResultList().stream().map(Arrays::toString).toList());
            said.add(session.createQuery("from Book b where upper(b.title) like 'NOTES 1%' order by b.price desc nulls last", Book.class).setFirstResult(1).setMaxResults(2).getResultList().stream().map(b -> b.title).toList());
            said.add(session.createMutationQuery("update Book b set b.sold = true where b.price > 15 and b.id in (select c.id from Book c)").executeUpdate());
            ada.books.remove(11); ada.name = "Augusta";
            session.flush();
            session.lock(ada, LockModeType.PESSIMISTIC_WRITE);
            said.add(session.createQuery("select count(*) from Book", Long.class).getSingleResult());
            said.add(session.createNativeQuery("select row_number() over (order by id) from book fetch first 2 rows only", Long.class).getResultList());
            return said;
        });
    }

    public static void main(String[] args) {
        java.util.logging.LogManager.getLogManager().reset();
        Steps steps = new Steps("hibernate");
        String port = args[0];
        steps.step("create", () -> { try (SessionFactory f = factory(port, "create", Author.class, Book.class)) { return null; } });
        steps.step("validate", () -> { try (SessionFactory f = factory(port, "validate", Author.class, Book.class)) { return used(f); } });
        steps.step("update without a change", () -> { try (SessionFactory f = factory(port, "update", Author.class, Book.class)) { return null; } });
        steps.step("update with columns and tables", () -> { try (SessionFactory f = factory(port, "update", LaterAuthor.class, Shelf.class)) { return null; } });
        steps.step("validate after it", () -> { try (SessionFactory f = factory(port, "validate", LaterAuthor.class, Shelf.class)) {
            return f.fromTransaction(s -> { Shelf shelf = new Shelf(); shelf.notes = "long"; s.persist(shelf); return s.createQuery("select a.name from LaterAuthor a", String.class).getResultList(); });
        } });
        steps.step("large objects", () -> { try (SessionFactory f = factory(port, "create", Scroll.class)) {
            f.inTransaction(s -> { Scroll scroll = new Scroll(); scroll.text = "long"; s.persist(scroll); });
            return f.fromTransaction(s -> s.createQuery("from Scroll", Scroll.class).getSingleResult().text);
        } });
        steps.step("create-drop", () -> { try (SessionFactory f = factory(port, "create-drop", LaterAuthor.class, Shelf.class)) { return null; } });
    }
}
