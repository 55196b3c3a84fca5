package gather

import (
	"bytes"
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
)

// HostName is the name that must not appear in the archive; "" if it is unknown or too general to look for.
func HostName(fsys fs.FS, live bool) string {
	b, _ := fs.ReadFile(fsys, "proc/sys/kernel/hostname")
	name := strings.TrimSpace(string(b))
	if name == "" && live {
		name, _ = os.Hostname()
	}
	name, _, _ = strings.Cut(name, ".")
	if len(name) < 4 || slices.Contains([]string{"localhost", "(none)", "cgroup", "memory", "cpuset"}, name) {
		return ""
	}
	return name
}

// secretFiles are names of files that tell who a machine is.
var secretFiles = map[string]bool{
	"hostname": true, "domainname": true, "node_desc": true, "node_guid": true, "sys_image_guid": true, "port_guid": true,
	"serial": true, "serial_number": true, "product_serial": true, "board_serial": true, "chassis_serial": true, "product_uuid": true,
	"uuid": true, "wwid": true, "unique_id": true, "board_asset_tag": true, "chassis_asset_tag": true, "address": true,
	"machine-id": true, "boot_id": true, "vpd": true,
}

// commandLine are the parameters of the kernel that concern CPUs and memory; others may hold names and secrets.
var commandLine = []string{"isolcpus", "nohz", "nohz_full", "rcu_nocbs", "maxcpus", "nr_cpus", "nosmt", "mitigations", "spectre_v2", "hugepages",
	"hugepagesz", "default_hugepagesz", "transparent_hugepage", "numa", "numa_balancing", "mem", "memmap", "intel_idle.max_cstate",
	"processor.max_cstate", "idle", "intel_pstate", "amd_pstate", "cpufreq.default_governor", "intel_iommu", "amd_iommu", "iommu",
	"cgroup_enable", "cgroup_disable", "systemd.unified_cgroup_hierarchy", "clocksource", "tsc", "nopti", "pti", "noxsave", "clearcpuid",
	"gather_data_sampling", "efi", "quiet"}

// shownMounts are the types of mounts that tell of limits; sources of others name servers and disks.
var shownMounts = []string{"cgroup", "cgroup2", "cpuset", "resctrl", "hugetlbfs", "proc", "sysfs"}

// shownStatus are the lines of /proc/self/status that tell what the process may use.
var shownStatus = []string{"Cpus_allowed", "Cpus_allowed_list", "Mems_allowed", "Mems_allowed_list", "Threads", "THP_enabled"}

var macAddress = regexp.MustCompile(`\b(?:[0-9A-Fa-f]{2}:){5}[0-9A-Fa-f]{2}\b`)

// redact is a file's content without what tells who the machine is.
func redact(name string, data []byte, host string) []byte {
	base := path.Base(name)
	switch {
	case len(data) == 0:
		return data
	case path.Base(path.Dir(name)) == "gids":
		// Unused entries are all zeros; used ones must not look unused.
		if strings.Trim(string(data), "0:\n ") == "" {
			return data
		}
		return []byte("0000:0000:0000:0000:0000:0000:0000:0001\n")
	case secretFiles[base]:
		return nil
	case name == "proc/cmdline":
		return []byte(strings.Join(slices.DeleteFunc(strings.Fields(string(data)), func(word string) bool {
			key, _, _ := strings.Cut(word, "=")
			return !slices.Contains(commandLine, key)
		}), " ") + "\n")
	case name == "proc/version":
		words := strings.Fields(string(data))
		return []byte(strings.Join(words[:min(3, len(words))], " ") + "\n")
	case name == "proc/self/status":
		data = lines(data, func(line string) bool {
			key, _, _ := strings.Cut(line, ":")
			return slices.Contains(shownStatus, key)
		})
	case name == "proc/self/mountinfo":
		data = lines(data, func(line string) bool {
			_, after, _ := strings.Cut(line, " - ")
			kind, _, _ := strings.Cut(after, " ")
			return slices.Contains(shownMounts, kind)
		})
	case name == "proc/mounts" || name == "proc/self/mounts":
		data = lines(data, func(line string) bool {
			f := strings.Fields(line)
			return len(f) > 2 && slices.Contains(shownMounts, f[2])
		})
	}
	data = macAddress.ReplaceAll(data, []byte("00:00:00:00:00:00"))
	if host != "" && (strings.HasPrefix(name, "proc/self/") || name == "proc/mounts") && bytes.Contains(data, []byte(host)) {
		data = []byte(hideHost(string(data), host))
	}
	return data
}

// lines keeps some lines of a text.
func lines(data []byte, keep func(string) bool) []byte {
	var out []byte
	for line := range strings.Lines(string(data)) {
		if keep(strings.TrimSuffix(line, "\n")) {
			out = append(out, line...)
		}
	}
	return out
}

// hideHost replaces a host's name where it stands as a word.
func hideHost(s, host string) string {
	if host == "" {
		return s
	}
	word := func(c byte) bool { return c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' }
	var b strings.Builder
	for {
		i := strings.Index(s, host)
		if i < 0 {
			return b.String() + s
		}
		end := i + len(host)
		inside := i > 0 && word(s[i-1]) || end < len(s) && word(s[end])
		b.WriteString(s[:i])
		if inside {
			b.WriteString(host)
		} else {
			b.WriteString("host")
		}
		s = s[end:]
	}
}
