package topo

import (
	"fmt"
	"reflect"
	"testing"
)

func TestUlimits(t *testing.T) {
	const limits = "Limit                     Soft Limit           Hard Limit           Units     \n" +
		"Max data size             %s            unlimited            bytes     \n" +
		"Max address space         %s              unlimited            bytes     \n"
	status := func() string { return "Name:\tx\nVmSize:\t  2000 kB\nVmData:\t  500 kB\n" }
	for _, c := range []struct {
		data, space string
		want        []Ulimit
	}{
		{"unlimited", "unlimited", nil},
		{"unlimited", "4096000", []Ulimit{{"-v", 4096000, 4096000 - 2000<<10}}},
		{"600000", "1000", []Ulimit{{"-v", 1000, 0}, {"-d", 600000, 600000 - 500<<10}}},
		{"many", "0", []Ulimit{{"-v", 0, 0}}},
	} {
		if got := ulimits(fmt.Sprintf(limits, c.data, c.space), status); !reflect.DeepEqual(got, c.want) {
			t.Errorf("data %s, address space %s: %v, want %v", c.data, c.space, got, c.want)
		}
	}
	if got := ulimits("", status); got != nil {
		t.Errorf("no /proc: %v", got)
	}
}

// Memory on nodes outside of the cpuset is none.
func TestOnAllowedNodes(t *testing.T) {
	node := func(id, free, active, inactive int) string {
		return fmt.Sprintf("Node %d MemTotal: 1000000 kB\nNode %d MemFree: %d kB\nNode %d Active(file): %d kB\nNode %d Inactive(file): %d kB", id, id, free, id, active, id, inactive)
	}
	r := fake(with(box(), map[string]string{
		"proc/meminfo":                          "MemTotal: 2000000 kB\nMemFree: 700000 kB\nMemAvailable: 900000 kB",
		"proc/self/status":                      "Cpus_allowed_list:\t0-7\nMems_allowed_list:\t0",
		"sys/devices/system/node/node0/meminfo": node(0, 100000, 150000, 50000),
		"sys/devices/system/node/node1/meminfo": node(1, 600000, 50000, 50000),
	}))
	m := must(t, r)
	if n, nodes := m.onAllowedNodes(r); nodes != "0" || n != 300000*900000/1000000<<10 {
		t.Errorf("%d KiB on node %q, want 270000 on 0", n>>10, nodes)
	}
	for i := range m.Nodes {
		m.Nodes[i].Allowed = true
	}
	if n, nodes := m.onAllowedNodes(r); nodes != "" {
		t.Errorf("all nodes allowed: %d bytes on %q", n, nodes)
	}
}

func TestBudget(t *testing.T) {
	m := Machine{MemTotal: 8 << 30, MemFree: 6 << 30, Limits: []MemLimit{{"/a", 1 << 30, 900 << 20}, {"/", 4 << 30, 100 << 20}}}
	if n, why, ok := m.Budget(); n != 100<<20 || why != "100 MiB left of the limit of 4 GiB of cgroup /" || !ok {
		t.Error(n, why, ok)
	}
	m.MemTotal, m.MemFree = 0, 0 // no /proc/meminfo
	if n, why, ok := m.Budget(); n != 100<<20 || why != "100 MiB left of the limit of 4 GiB of cgroup /" || !ok {
		t.Error(n, why, ok)
	}
	m.Limits = nil
	if n, _, ok := m.Budget(); ok {
		t.Error(n, "bytes from nowhere")
	}
}
