// golang-migrate against a server: up, back, down, drop. Called by e2e/tools with the port and a folder for the migrations.
package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/golang-migrate/migrate/v4"
	_ "github.com/golang-migrate/migrate/v4/database/postgres"
	_ "github.com/golang-migrate/migrate/v4/source/file"
)

var files = map[string]string{
	"1_authors.up.sql":   "CREATE TABLE authors (id serial PRIMARY KEY, name varchar(40) NOT NULL UNIQUE);",
	"1_authors.down.sql": "DROP TABLE authors;",
	"2_books.up.sql": `BEGIN;
CREATE TABLE books (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, author_id int NOT NULL REFERENCES authors ON DELETE CASCADE, title text);
CREATE INDEX books_author ON books (author_id);
INSERT INTO authors (name) VALUES ('Ada') ON CONFLICT DO NOTHING;
COMMIT;`,
	"2_books.down.sql": "DROP TABLE IF EXISTS books CASCADE;",
	"3_wrong.up.sql":   "CREATE TABLE wrong (id nosuchtype);",
	"3_wrong.down.sql": "SELECT 1;",
}

func step(name string, act func() (string, error)) {
	said, err := act()
	if err != nil {
		fmt.Printf("FAILED  golang-migrate: %s (line %v\n", name, err)
		return
	}
	fmt.Printf("ok      golang-migrate: %s = %s\n", name, said)
}

func main() {
	folder := filepath.Join(os.Args[2], "golang-migrations")
	if err := os.MkdirAll(folder, 0o755); err != nil {
		panic(err)
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o644); err != nil {
			panic(err)
		}
	}
	defer os.RemoveAll(folder)
	url := fmt.Sprintf("postgres://postgres@127.0.0.1:%s/postgres?sslmode=disable&x-lock-timeout=5s", os.Args[1])
	m, err := migrate.New("file://"+folder, url)
	if err != nil {
		fmt.Printf("FAILED  golang-migrate: open (line %v\n", err)
		return
	}
	version := func() (string, error) {
		number, dirty, err := m.Version()
		return fmt.Sprintf("version %d, dirty %v", number, dirty), err
	}
	then := func(err error) (string, error) {
		if err != nil {
			return "", err
		}
		return version()
	}
	step("up to 2", func() (string, error) { return then(m.Migrate(2)) })
	step("again", func() (string, error) {
		if err := m.Migrate(2); !errors.Is(err, migrate.ErrNoChange) {
			return "", fmt.Errorf("not ErrNoChange: %v", err)
		}
		return version()
	})
	step("back by one", func() (string, error) { return then(m.Steps(-1)) })
	step("forth by one", func() (string, error) { return then(m.Steps(1)) })
	step("a migration that fails leaves it dirty", func() (string, error) {
		if err := m.Up(); err == nil {
			return "", errors.New("it did not fail")
		}
		return version()
	})
	step("force", func() (string, error) { return then(m.Force(2)) })
	step("down", func() (string, error) {
		if err := m.Down(); err != nil {
			return "", err
		}
		_, _, err := m.Version()
		return fmt.Sprint(err), nil
	})
	step("up to 2 again", func() (string, error) { return then(m.Migrate(2)) })
	step("drop", func() (string, error) { return "done", m.Drop() })
}
