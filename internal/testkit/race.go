//go:build race

package testkit

// Race tells whether the race detector watches: a test that computes much does less of it then.
const Race = true
