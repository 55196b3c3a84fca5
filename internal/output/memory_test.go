package output

import (
	"strings"
	"testing"
)

func TestNodePages(t *testing.T) {
	const maps = `7f0000000000 default anon=3 dirty=3 N0=2 N1=1 kernelpagesize_kB=4
7f0000200000 default anon=1 dirty=1 N1=1 kernelpagesize_kB=2048
7f0000400000 default file=/usr/lib/N0=x mapped=1 Nx=3
`
	if got := nodePages(strings.NewReader(maps)); got != "0: 0.0 MiB, 1: 2.0 MiB" {
		t.Error(got)
	}
}
