package topo

import (
	"strconv"

	"ck/internal/isa"
)

// A Survey is what cktopo shows: the Machine that the engine uses, and what only people ask for. It takes longer to read (caches of
// every CPU, devices), so the engine does not. What the tree does not tell is absent: nil, 0, "" or -1 as said; Missing names files
// that should be there and are not, or that make no sense.
//
// Comments name the file of each fact: cpu* and node* stand for the folders in /sys/devices/system, and the files of a device are named
// without its own folder, which its type has. The kernel describes them in Documentation/ABI and Documentation/admin-guide.
type Survey struct {
	Machine

	Arch   string // "x86_64", "aarch64"…; "" if not told. From the keys of /proc/cpuinfo, else from what only x86 has in /sys
	Model  string // of the CPU, as the kernel names it in /proc/cpuinfo
	Kernel string // release: /proc/sys/kernel/osrelease, else /proc/version

	// CPUs by number: /sys/devices/system/cpu/{possible,present}.
	Possible, Present, Offline []int // Offline: present and not online
	Disallowed                 []int // online, but outside the affinity and the cpuset of this process
	DisallowedNodes            []int // nodes with memory outside cpuset.mems and Mems_allowed of /proc/self/status

	// Counts over online CPUs, of sets in /sys/devices/system/cpu/cpu*/topology.
	Packages  []Package  // by the ID that the kernel gives (physical_package_id), which may be sparse; nil if nothing tells packages
	Dies      int        // die_cpus_list; 0: the kernel does not report dies
	Clusters  int        // cluster_cpus_list: cores that share an L2 or a bus; 0: not told
	Books     int        // book_siblings_list: of mainframes, above packages; 0: none
	Drawers   int        // drawer_siblings_list: above books; 0: none
	Cores     int        // core_cpus_list: with at least one online CPU; 0: not told
	SMT       int        // most online threads of a core; 0: not told
	Kinds     []Kind     // of cores, fastest first; nil: all alike
	Caches    []Shape    // every cache, instances with one shape together; by level, type, size, sharers
	CacheSets []CacheSet // every cache by itself, for who shares what; by level, type and first CPU
	Memory    []NodeMemory
	Distance  [][]int // node*/distance, the firmware's SLIT: 10 is local. Between the nodes of Machine.Nodes in that order; nil if not told
	SubNUMA   string  // "SNC-4", "NPS4", "CoD": nodes with CPUs within a package; "" for one or none. By family and model of the CPU

	HugePages []HugePool // by node, then by size
	Settings  Settings
	ISA       ISA

	DSA          []Accelerator // DSA and IAA, by number
	CXL          CXL
	RDMA         []RDMA        // a port each
	Power        []PowerZone   // by number
	Thermal      []ThermalZone // thermal zones by number, then AMD's sensors
	Resctrl      *Resctrl      // nil: not mounted
	ResctrlFlags []string      // flags of /proc/cpuinfo: what resctrl could count and limit here, mounted or not: "cqm_mbm_total", "mba"…
	Missing      []string      // one sentence each
}

// A Package is a physical package, a socket.
type Package struct {
	ID    int
	CPUs  []int // online
	Cores int   // with at least one online CPU
	Nodes []int // IDs of nodes with CPUs of this package
}

// A Kind is a kind of cores of a hybrid machine.
type Kind struct {
	Name     string // "P-core", "E-core" (/sys/devices/cpu_{core,atom}/cpus), or "capacity 1024"
	CPUs     []int  // online
	Capacity int    // cpu*/cpu_capacity: relative speed as the kernel sees it, 1024 for the fastest; 0 if not told
}

// A CacheSet is one cache: /sys/devices/system/cpu/cpu*/cache/index*.
type CacheSet struct {
	Level int
	Type  string // "data", "instruction", "unified"
	Bytes int64  // 0: not told
	CPUs  []int  // online CPUs that share it
}

// A Shape is all caches of one level, type, size and number of online sharers.
type Shape struct {
	Level int
	Type  string // "data", "instruction", "unified"
	Bytes int64  // of one; 0: not told
	CPUs  int    // online CPUs that share one
	Count int
}

// Name is the cache as people call it: "L1d", "L1i", "L2".
func (c Shape) Name() string {
	name := "L" + strconv.Itoa(c.Level)
	switch c.Type {
	case "data":
		if c.Level == 1 {
			name += "d"
		}
	case "instruction":
		name += "i"
	}
	return name
}

// MemoryKind tells memories apart where the system says so.
type MemoryKind string

// The memory kinds.
const (
	DRAM MemoryKind = "DRAM"
	HBM  MemoryKind = "HBM"
	PMEM MemoryKind = "PMEM"
	CXLm MemoryKind = "CXL"
	GPU  MemoryKind = "GPU"
	None MemoryKind = "" // no memory, or nothing says what it is
)

// NodeMemory is what is known of the memory of Machine.Nodes at the same index.
type NodeMemory struct {
	Kind    MemoryKind
	Why     string      // what says so: "dax0.0 targets this node", "CPU-less, 4 times the bandwidth"
	Access  [2]*Access  // node*/access{0,1}/initiators: HMAT classes 0 (any initiator) and 1 (CPUs only); nil if not told
	Tier    int         // /sys/devices/virtual/memory_tiering/memory_tier*/nodelist, smaller is faster; -1 if not told
	Caches  []SideCache // memory-side caches
	Package int         // whose it is: by its CPUs or its nearest node with CPUs; -1 if unclear
}

// Access is what HMAT says of reading and writing a node's memory from its initiators; 0 is not told.
type Access struct {
	Initiators                    []int // node IDs
	ReadLatency, WriteLatency     int   // ns
	ReadBandwidth, WriteBandwidth int   // MiB/s
}

// A SideCache is memory that caches other memory, MCDRAM or DRAM in front of persistent memory: node*/memory_side_cache/index*.
type SideCache struct {
	Index     int
	Bytes     int64
	LineBytes int
	Direct    bool // indexing 0: direct mapped
	WriteBack bool // write_policy 0
}

// A HugePool is the pool of preallocated huge pages of one size on one node (Node -1: the whole machine, where nodes are not told):
// node*/hugepages/hugepages-*kB/{nr,free}_hugepages.
type HugePool struct {
	Node        int
	PageBytes   int64
	Total, Free int64 // pages
}

// Settings are the switches of the system that change how fast a model runs. "" is not told.
type Settings struct {
	THP, THPDefrag  string   // the active word of /sys/kernel/mm/transparent_hugepage/{enabled,defrag}: "always", "madvise", "never"
	NUMABalancing   string   // /proc/sys/kernel/numa_balancing: "0", "1", "2"
	Governor        string   // cpu*/cpufreq/scaling_governor of the allowed CPUs; several are joined with commas
	Driver          string   // cpu*/cpufreq/scaling_driver
	Turbo           string   // "on", "off": intel_pstate/no_turbo, else cpufreq/boost
	SMTControl      string   // smt/control: "on", "off", "forceoff", "notsupported", "notimplemented"
	UMWaitMax       string   // umwait_control/max_time: cycles of the TSC after which the system ends UMWAIT and TPAUSE; "0": never
	Swappiness      string   // /proc/sys/vm/swappiness
	SwapTotal       int64    // bytes; 0: none. /proc/meminfo
	SwapUsed        int64    // bytes
	Overcommit      string   // /proc/sys/vm/overcommit_memory
	ZoneReclaim     string   // /proc/sys/vm/zone_reclaim_mode
	Memlock         int64    // ulimit -l of this process, bytes; -1: unlimited, -2: not told. /proc/self/limits
	AddressSpace    int64    // ulimit -v, bytes; -1: unlimited, -2: not told
	Mitigations     []string // vulnerability: mitigation, those that are active. cpu/vulnerabilities/*
	ClockSource     string   // /sys/devices/system/clocksource/clocksource0/current_clocksource
	Hypervisor      bool     // flag of /proc/cpuinfo, or /sys/hypervisor/type is there
	Isolated        []int    // cpu/isolated: isolcpus
	NoHzFull        []int    // cpu/nohz_full
	PageCacheByNode []int64  // bytes of FilePages in node*/meminfo, by Machine.Nodes; nil: not told
}

// ISA is what instruction sets the CPU has and what the system permits.
type ISA struct {
	Source   string     // "this CPU", "CPUID dump cpuid/x.txt", "/proc/cpuinfo"; "" if nothing tells
	Vendor   string     // "GenuineIntel", "AuthenticAMD"; "" if not told
	Features []string   // as internal/isa names them
	Tiers    []string   // of our kernels that would run, lowest first; the last is the one that ck chooses
	AMX      string     // "", or why AMX is there and may not be used, or that it may
	Tiles    *isa.Tiles // the shape of AMX's registers, where a CPUID dump tells it
}

// Best is the tier that ck chooses; isa.Go if nothing tells.
func (x ISA) Best() isa.Tier {
	if len(x.Tiers) == 0 {
		return isa.Go
	}
	t, err := isa.Parse(x.Tiers[len(x.Tiers)-1])
	if err != nil {
		panic(err) // Tiers are names that isa gave
	}
	return t
}

// Uses reports whether the kernels of the best tier use the features f here.
func (x ISA) Uses(f isa.Features) bool { return x.Best().Use(isa.FromNames(x.Features)).Has(f) }

// An Accelerator is a DSA or IAA device of the idxd driver: /sys/bus/dsa/devices/{dsa,iax}*. Names of fields are those of its attributes.
type Accelerator struct {
	Name, Type, State                string // "dsa0"; "dsa" or "iax"; "disabled", "enabled", "halted"
	PCI, PCIVendor, PCIDevice        string // its place, "0000:6a:01.0"; "0x8086"; "0x0b25" (DSA), "0x0cfe" (IAA)
	Version                          string // "0x100"
	Node                             int    // -1 unknown
	MaxGroups, MaxQueues, MaxEngines int
	QueueSizes                       int   // max_work_queues_size: entries to share between the queues
	MaxTransfer                      int64 // bytes of a descriptor
	MaxBatch                         int   // descriptors; 0: no batches
	ReadBuffers, ReadBufferLimit     int   // max_read_buffers, read_buffer_limit; before Linux 5.17 max_tokens, token_limit
	PASID                            bool  // pasid_enabled: shared virtual memory, which user queues need
	Configurable                     bool  // not: the configuration is fixed
	OpCap                            string
	GenCap                           string
	Errors                           string // the SWERR register, four words
	CmdStatus                        string // of the last command
	Clients                          int    // open handles
	Major                            int    // cdev_major, of the character devices; -1 unknown
	Queues                           []Queue
	Engines                          int   // engines that are in a group
	EngineGroups                     []int // of each engine by number the group_id; -1: in none
	Groups                           []Group
}

// A Queue is a work queue of an Accelerator: wq*.*.
type Queue struct {
	Name, State   string
	Mode          string // "dedicated" (MOVDIR64B), "shared" (ENQCMD)
	Type          string // "none", "kernel", "user"
	Label, Driver string // name, driver_name (later than Linux 6.1)
	Group         int    // group_id; -1: none
	Size          int    // entries
	Threshold     int    // entries that the limited portal of a shared queue may fill
	Priority      int    // 1 to 15
	Minor         int    // cdev_minor; -1: none
	BlockOnFault  bool   // the device may wait for a page fault
	ATSDisable    bool
	MaxTransfer   int64 // bytes
	MaxBatch      int   // descriptors
	Clients       int
	// EnqcmdsRetries is how often the kernel's own submission to a full queue is tried again.
	EnqcmdsRetries int
	Occupancy      int    // entries in use; -1: the device does not count them
	OpConfig       string // map of the opcodes that it accepts
	Device         string // "/dev/dsa/wq0.0"; "" where there is none
	Usable         bool   // this process may submit to it
	Why            string // why not, and the command that would let it; or what to know before
}

// A Group is a group of an Accelerator, group*.*: its engines serve its queues. Names of fields are those of its attributes; -1 is not told.
type Group struct {
	Name                                    string
	Engines, Queues                         []string
	TrafficClassA, TrafficClassB            int
	UseReadBufferLimit                      bool
	ReadBuffersAllowed, ReadBuffersReserved int
	DescProgressLimit, BatchProgressLimit   int
}

// CXL is the memory devices and regions of the CXL bus (/sys/bus/cxl/devices), and the DAX devices that stand on them or on persistent
// memory (/sys/bus/dax/devices).
type CXL struct {
	Memories []CXLMemory
	Ports    []CXLPort
	Decoders []CXLDecoder
	Regions  []CXLRegion
	DAX      []DAX
}

// A CXLMemory is a type-3 device: mem*.
type CXLMemory struct {
	Name, Firmware, Serial string // firmware_version; "0x…"
	RAMBytes, PMEMBytes    int64  // ram/size, pmem/size
	Node                   int    // -1: unknown
	LabelBytes, PayloadMax int64  // bytes of label storage; of a mailbox command
	Device                 string // "/dev/cxl/mem0", which takes mailbox commands; "" where there is none
}

// A CXLPort is a root, a switch port or an endpoint: root*, port*, endpoint*.
type CXLPort struct {
	Name, Type string   // "root0"; its devtype, "" if not told
	Parent     string   // the port above it; "" for roots
	UPort      string   // the device that is its upstream port, where the link uport leads: "mem0", "pci0000:16"
	DPorts     []string // those of its downstream ports, in the order of dport0, dport1…
	CDAT       bool     // of an endpoint: the device describes its latency and bandwidth (readable by root)
}

// A CXLDecoder is an address decoder of a port, decoder*.*: it says to which targets an address range goes.
type CXLDecoder struct {
	Name, Type            string // devtype: "cxl_decoder_root", "cxl_decoder_endpoint"…
	Start, Bytes          int64  // physical address; 0: none, or not told
	Locked                bool
	TargetType            string   // "expander", "accelerator"
	Targets               []int    // target_list, in the order of interleaving
	Ways, Granularity     int      // of interleaving; bytes
	Capabilities          []string // cap_* of a root: "ram", "pmem", "type2", "type3"
	CreatePMEM, CreateRAM string   // create_*_region of a root: the name that the next region would get; "": there can be none
	Mode                  string   // of an endpoint: "ram", "pmem", "mixed", "none"
	DPAStart, DPASize     int64    // dpa_resource, dpa_size of an endpoint: addresses within the device; -1: not told, or none
	Region                string   // of an endpoint
}

// A CXLRegion is an address range of one or several devices: region*.
type CXLRegion struct {
	Name, UUID        string
	Bytes, Resource   int64  // Resource: its first address; -1: none, or not told
	Ways, Granularity int    // of interleaving; bytes
	Mode              string // "ram", "pmem"; "" where the kernel does not tell
	Committed         bool
	Targets           []string // target*: decoders, in the order of interleaving
	DAX               string   // its dax device
	TargetNode        int      // the node that it is as system RAM; -1: none
}

// A DAX is a device of the dax bus: dax*.*.
type DAX struct {
	Name             string
	Bytes, Align     int64
	Resource         int64  // first address; -1: not told
	TargetNode, Node int    // the node that it becomes as system RAM; the one that it is near to. -1: none
	Driver           string // of /sys/bus/dax/drivers. "kmem": system RAM; "device_dax": mapped by programs; "": none bound, or not told
	path             string // of its folder, which tells on what it stands
}

// An RDMA is one port of an InfiniBand or RoCE device: /sys/class/infiniband/*/ports/*.
type RDMA struct {
	Device, Firmware, Type string   // fw_ver, hca_type
	NodeType               string   // "CA"
	Hardware, Board        string   // hw_rev, board_id
	PCIVendor, PCIDevice   string   // device/{vendor,device}: "0x15b3"
	Verbs                  string   // "uverbs0": what programs open
	Node                   int      // device/numa_node; -1: unknown
	LocalCPUs              []int    // device/local_cpulist
	NetDevices             []string // device/net, gid_attrs/ndevs

	Port            int
	State, Physical string  // "ACTIVE", "LinkUp"
	Link            string  // link_layer: "InfiniBand", "Ethernet"
	Rate            string  // "400 Gb/sec (4X NDR)"
	RateGbps        float64 // Gbit/s; 0: not told
	LID, SMLID      string
	LIDMask, SMSL   int              // lid_mask_count, sm_sl
	Capabilities    string           // cap_mask
	GIDTypes        []string         // gid_attrs/types: "IB/RoCE v1", "RoCE v2", each once
	Counters        map[string]int64 // of counters/; data counters are in units of four bytes
	HWCounters      map[string]int64 // of hw_counters/, as the driver names them; of the device where it has none for the port
}

// A PowerZone is a RAPL zone: /sys/class/powercap/intel-rapl:*, on AMD's CPUs also.
type PowerZone struct {
	Zone, Name    string // "intel-rapl:0:0", "dram"
	Enabled       bool
	Energy, Range int64        // uJ. Energy -1: may not be read; it begins again at 0 after Range (max_energy_range_uj; 0: not told)
	Limits        []PowerLimit // constraint_*
}

// A PowerLimit is a constraint of a zone. 0: not told.
type PowerLimit struct {
	Name            string // "long_term", "short_term", "peak_power"
	Watts, MaxWatts float64
	Seconds         float64 // of the window over which power is averaged
}

// A ThermalZone is a temperature: /sys/class/thermal/thermal_zone*, /sys/class/hwmon/hwmon* of k10temp.
type ThermalZone struct {
	Zone, Type   string // "thermal_zone0", "x86_pkg_temp"; for AMD's CPUs "hwmon2", "k10temp"
	Mode, Policy string
	Celsius      float64
	Readable     bool // not: the sensor was busy, or may not be read
	Trips        []Trip
}

// A Trip is a temperature at which something happens.
type Trip struct {
	Type    string // "critical", "passive"
	Celsius float64
}

// Resctrl is what the mounted resctrl file system monitors: /sys/fs/resctrl.
type Resctrl struct {
	Features []string // info/L3_MON/mon_features: mbm_total_bytes…
	RMIDs    int      // info/L3_MON/num_rmids: how many groups can be counted; 0: not told
	Groups   int      // in mon_groups: whose threads are counted apart
	Domains  []ResctrlDomain
}

// A ResctrlDomain is the counters of one L3, or of one SNC node of it, in bytes: mon_data/mon_L3_*. -1: unavailable.
type ResctrlDomain struct {
	L3, Node     int   // Node -1: all of the L3
	Total, Local int64 // mbm_{total,local}_bytes: moved to and from memory since counting began; of the own node
	Occupancy    int64 // llc_occupancy: in the cache now
}
