// Package testkit holds what tests share: the reference data, guard pages, comparisons with references. Only tests import it.
package testkit

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Root is the project's root folder (the one that holds go.mod), found from the test's working directory.
func Root(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		up := filepath.Dir(dir)
		if up == dir {
			t.Fatal("no go.mod above the working directory")
		}
		dir = up
	}
}

// Data is the path of a file or folder of the reference data, ../shared/data/NAME beside the project. Where the data is absent
// the test is skipped, or fails if CK_TEST_REQUIRE names "data".
func Data(t testing.TB, name string) string {
	t.Helper()
	p := filepath.Join(Root(t), "..", "shared", "data", name)
	if _, err := os.Stat(p); err != nil {
		if Required("data") {
			t.Fatalf("reference data %s is absent, and CK_TEST_REQUIRE asks for it", name)
		}
		t.Skipf("reference data %s is absent (../shared/data)", name)
	}
	return p
}

// Required reports whether the comma-separated CK_TEST_REQUIRE names what.
func Required(what string) bool {
	for _, s := range strings.Split(os.Getenv("CK_TEST_REQUIRE"), ",") {
		if strings.TrimSpace(s) == what {
			return true
		}
	}
	return false
}
