// Package testkit holds what tests share: the reference data, guard pages, comparisons with references. Only tests import it.
package testkit

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The reference data is found in one of two places. The larger set lies beside the project, in ../shared/data, or where CK_TEST_DATA
// says. Without it there is testdata, the part that travels with the repository: packed, and unpacked into a cache when a test first
// asks for it. The names are the same in both; table.go lists them.

// Root is the project's root folder (the one that holds go.mod), found from the test's working directory.
func Root(t testing.TB) string {
	t.Helper()
	dir, err := root()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func root() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		up := filepath.Dir(dir)
		if up == dir {
			return "", errors.New("no go.mod above the working directory")
		}
		dir = up
	}
}

// larger is the folder of the larger set, "" where there is none. A CK_TEST_DATA that names no folder asks for testdata.
func larger() (string, error) {
	dir, ok := os.LookupEnv("CK_TEST_DATA")
	if !ok {
		dir = filepath.Join("..", "shared", "data")
	}
	if !filepath.IsAbs(dir) { // from the root, whatever the package
		r, err := root()
		if err != nil {
			return "", err
		}
		dir = filepath.Join(r, dir)
	}
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return "", nil
	}
	return dir, nil
}

// Data is the path of a file or folder of the reference data, "." being all of it. Of a folder that testdata has in part, the path holds
// that part. Where the name is absent the test is skipped, or fails if CK_TEST_REQUIRE names "data". Files are to be read only.
func Data(t testing.TB, name string) string {
	t.Helper()
	p, ok := Lookup(t, name)
	switch {
	case ok:
		return p
	case Required("data"):
		t.Fatalf("reference data %s is absent, and CK_TEST_REQUIRE asks for it", name)
	default:
		t.Skipf("reference data %s is absent: it is in ../shared/data alone, not in testdata", name)
	}
	return ""
}

// Lookup is Data for tests that have something to do without the name: it says whether it is there.
func Lookup(t testing.TB, name string) (path string, ok bool) {
	t.Helper()
	if !known(name) {
		t.Fatalf("reference data %s: no row of internal/testkit/table.go has it; add one", name)
	}
	dir, err := larger()
	if err == nil && dir == "" {
		dir, err = unpackFor(t, name)
	}
	if err != nil {
		t.Fatal(err)
	}
	p := filepath.Join(dir, filepath.FromSlash(name))
	if _, err := os.Stat(p); errors.Is(err, fs.ErrNotExist) {
		return "", false
	} else if err != nil {
		t.Fatal(err)
	}
	return p, true
}

// Least is how many files or cases a test must have met at least: all of the larger set, or those of testdata.
func Least(t testing.TB, all, travelling int) int {
	t.Helper()
	dir, err := larger()
	if err != nil {
		t.Fatal(err)
	}
	if dir != "" {
		return all
	}
	return travelling
}

// LeftOut says in one line what tests are left without, "" if nothing is.
func LeftOut() (string, error) {
	dir, err := larger()
	if err != nil || dir != "" {
		return "", err
	}
	var list []string
	for _, r := range stays {
		list = append(list, fmt.Sprintf("%d %s", r.count, r.what))
	}
	return "tests left out what is in ../shared/data alone: " + strings.Join(list, ", ") + " (testdata/README.md)", nil
}

// Required reports whether the comma-separated CK_TEST_REQUIRE names what.
func Required(what string) bool {
	return slices.ContainsFunc(strings.Split(os.Getenv("CK_TEST_REQUIRE"), ","), func(s string) bool { return strings.TrimSpace(s) == what })
}
