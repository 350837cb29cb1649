-- Tables whose keys are drawn from serial columns, and what a schema of some years holds beside them.
CREATE SCHEMA shop;
COMMENT ON SCHEMA shop IS 'what is sold';
CREATE TABLE shop.author (
    id serial PRIMARY KEY,
    name varchar(40) NOT NULL,
    born date,
    active boolean DEFAULT true NOT NULL,
    CONSTRAINT author_name_key UNIQUE (name)
);
CREATE TABLE shop.book (
    id bigserial PRIMARY KEY,
    author_id integer NOT NULL REFERENCES shop.author ON DELETE CASCADE ON UPDATE CASCADE,
    title text NOT NULL,
    price numeric(8,2) DEFAULT 9.99 NOT NULL,
    weight double precision,
    isbn character(13),
    tags text[] DEFAULT '{}'::text[],
    cover bytea,
    added timestamp with time zone DEFAULT now(),
    sold timestamp without time zone,
    at time without time zone DEFAULT '08:00:00'::time without time zone,
    span interval,
    code uuid,
    about json,
    small smallint DEFAULT 7,
    ratio real,
    CONSTRAINT book_price_check CHECK ((price > (0)::numeric)),
    CONSTRAINT title_once UNIQUE (author_id, title)
);
COMMENT ON TABLE shop.book IS 'books; it''s a long list';
COMMENT ON COLUMN shop.book.isbn IS 'thirteen digits';
COMMENT ON CONSTRAINT book_price_check ON shop.book IS 'nothing is free';
CREATE INDEX book_sold ON shop.book (sold) WHERE sold IS NOT NULL;
CREATE INDEX book_lower_title ON shop.book (lower(title));
CREATE UNIQUE INDEX book_code ON shop.book (code, (price * 2::numeric)) WHERE code IS NOT NULL AND small > 3;
COMMENT ON INDEX shop.book_sold IS 'few of many';
CREATE TABLE "Order Line" (
    "select" integer DEFAULT nextval('shop.book_id_seq'::regclass) NOT NULL,
    "Wert ä" character varying(10)[],
    qty integer DEFAULT (1 + 2),
    word text DEFAULT ('a'::text || upper('b'::text)),
    CONSTRAINT "Order Line_pkey" PRIMARY KEY ("select")
);
CREATE SEQUENCE plain_seq;
CREATE SEQUENCE shop.ticket AS smallint START WITH 10 INCREMENT BY 5 MINVALUE 5 MAXVALUE 100 CACHE 3 CYCLE;
CREATE SEQUENCE shop.down INCREMENT BY -1;
COMMENT ON SEQUENCE shop.down IS 'downwards';
CREATE VIEW shop.overview AS
    SELECT a.id, a.name, count(b.id) AS books, sum(b.price) AS worth
    FROM shop.author a LEFT JOIN shop.book b ON b.author_id = a.id
    GROUP BY a.id, a.name HAVING count(b.id) >= 0;
CREATE VIEW dear AS SELECT title, price FROM shop.book WHERE price > 10::numeric ORDER BY price DESC;
CREATE VIEW dearest AS SELECT title FROM dear LIMIT 1;
COMMENT ON VIEW dear IS 'above ten';
INSERT INTO shop.author (name, born) VALUES ('Ada', '1815-12-10'), ('Grace', NULL), (E'tab\tnew\nline\\', '4713-01-01 BC');
INSERT INTO shop.book (author_id, title, price, weight, isbn, tags, cover, added, sold, at, span, code, about, small, ratio) VALUES
    (1, 'Notes', 12.5, 0.1, '9781234567890', '{a,"b c",NULL}', '\xdeadbeef00', '2024-02-29 12:00:00.123456+02', '2024-03-01', '23:59:59.999', '1 year 2 mons -3 days 04:05:06.7', 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', '{"a": [1, "x"]}', 1, 1.5),
    (1, 'Letters', 3, 'NaN', '1', NULL, '', 'infinity', '-infinity', NULL, '-1 day', NULL, 'null', -32768, '-Infinity'),
    (2, E'quote '' and \\ and "', 99999.99, 1e300, NULL, '{}', NULL, NULL, NULL, '00:00', NULL, 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a12', NULL, 9, 3.4e38),
    (3, '\.', 1, -0.0, '', '{x,y}', NULL, '2024-01-01 BC', NULL, NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO "Order Line" ("Wert ä", word) VALUES ('{a,ß}', ''), (NULL, NULL);
SELECT nextval('plain_seq'), nextval('plain_seq'), nextval('shop.ticket');
GRANT USAGE ON SCHEMA shop TO dump_reader;
GRANT SELECT ON shop.author, dear TO dump_reader;
GRANT SELECT, INSERT ON shop.book TO dump_reader WITH GRANT OPTION;
GRANT USAGE ON SEQUENCE shop.book_id_seq TO dump_reader;
GRANT SELECT ON shop.overview TO PUBLIC;
