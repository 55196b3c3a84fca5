package topo

// A Survey is what cktopo shows: the Machine that the engine uses, and what only people ask for. It takes longer to read (caches of
// every CPU, devices), so the engine does not. What the tree does not tell is absent: nil, 0, "" or -1 as said; Missing names files
// that should be there and are not, or that make no sense.
type Survey struct {
	Machine

	Arch   string // "x86_64", "aarch64"…; "" if not told
	Model  string // of the CPU, as the kernel names it
	Kernel string // release

	Possible, Present, Offline []int // CPUs; Offline: present and not online
	Disallowed                 []int // online, but outside the cpuset of this process
	DisallowedNodes            []int // nodes with memory outside cpuset.mems

	Packages  []Package // by the ID that the kernel gives, which may be sparse; nil if nothing tells packages
	Dies      int       // over online CPUs; 0: the kernel does not report dies
	Clusters  int
	Books     int // of mainframes, above packages
	Drawers   int
	Cores     int        // with at least one online CPU; 0: not told
	SMT       int        // most online threads of a core; 0: not told
	Kinds     []Kind     // of cores, fastest first; nil: all alike
	Caches    []Shape    // every cache, instances with one shape together; by level, type, size, sharers
	CacheSets []CacheSet // every cache by itself, for who shares what; by level, type and first CPU
	Memory    []NodeMemory
	Distance  [][]int // between the nodes of Machine.Nodes in that order; nil if not told
	SubNUMA   string  // "SNC-4", "NPS4", "CoD": nodes with CPUs within a package; "" for one or none

	HugePages []HugePool
	Settings  Settings
	ISA       ISA

	DSA     []Accelerator // DSA and IAA
	CXL     CXL
	RDMA    []RDMA
	Power   []PowerZone
	Thermal []ThermalZone
	Resctrl *Resctrl // nil: not mounted
	Missing []string // one sentence each
}

// A Package is a physical package, a socket.
type Package struct {
	ID    int
	CPUs  []int // online
	Cores int
	Nodes []int // IDs of nodes with CPUs of this package
}

// A Kind is a kind of cores of a hybrid machine.
type Kind struct {
	Name     string // "P-core", "E-core", or "capacity 1024"
	CPUs     []int
	Capacity int // relative speed as the kernel sees it, 1024 for the fastest; 0 if not told
}

// A CacheSet is one cache.
type CacheSet struct {
	Level int
	Type  string
	Bytes int64
	CPUs  []int // online CPUs that share it
}

// A Shape is all caches of one level, type, size and number of online sharers.
type Shape struct {
	Level int
	Type  string // "data", "instruction", "unified"
	Bytes int64  // of one; 0: not told
	CPUs  int    // online CPUs that share one
	Count int
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
	Access  [2]*Access  // HMAT classes 0 (any initiator) and 1 (CPUs only); nil if not told
	Tier    int         // of memory_tiering, smaller is faster; -1 if not told
	Caches  []SideCache // memory-side caches
	Package int         // whose it is: by its CPUs or its nearest node with CPUs; -1 if unclear
}

// Access is what HMAT says of reading and writing a node's memory from its initiators; 0 is not told.
type Access struct {
	Initiators                    []int // node IDs
	ReadLatency, WriteLatency     int   // ns
	ReadBandwidth, WriteBandwidth int   // MiB/s
}

// A SideCache is memory that caches other memory: MCDRAM or DRAM in front of persistent memory.
type SideCache struct {
	Index     int
	Bytes     int64
	LineBytes int
	Direct    bool // direct mapped
	WriteBack bool
}

// A HugePool is the pool of preallocated huge pages of one size on one node (Node -1: the whole machine, where nodes are not told).
type HugePool struct {
	Node        int
	PageBytes   int64
	Total, Free int64 // pages
}

// Settings are the switches of the system that change how fast a model runs. "" is not told.
type Settings struct {
	THP, THPDefrag  string // the active word: "always", "madvise", "never"
	NUMABalancing   string // "0", "1", "2"
	Governor        string // of the allowed CPUs; several are joined with commas
	Driver          string // cpufreq driver
	Turbo           string // "on", "off"
	SMTControl      string // "on", "off", "forceoff", "notsupported", "notimplemented"
	Swappiness      string
	SwapTotal       int64    // bytes; 0: none
	SwapUsed        int64    // bytes
	Overcommit      string   // vm.overcommit_memory
	ZoneReclaim     string   // vm.zone_reclaim_mode
	Memlock         int64    // ulimit -l of this process, bytes; -1: unlimited, -2: not told
	AddressSpace    int64    // ulimit -v, bytes; -1: unlimited, -2: not told
	Mitigations     []string // vulnerability: mitigation, those that are active
	ClockSource     string
	Hypervisor      bool
	Isolated        []int // isolcpus
	NoHzFull        []int
	PageCacheByNode []int64 // bytes of FilePages, by Machine.Nodes
}

// ISA is what instruction sets the CPU has and what the system permits.
type ISA struct {
	Source   string   // "this CPU", "CPUID dump cpuid/x.txt", "/proc/cpuinfo"; "" if nothing tells
	Vendor   string   // "GenuineIntel", "AuthenticAMD"; "" if not told
	Features []string // as internal/isa names them
	Tiers    []string // of our kernels that would run, lowest first; the last is the one that ck chooses
	AMX      string   // "", or why AMX is there and may not be used, or that it may
}

// An Accelerator is a DSA or IAA device of the idxd driver. Names of fields are those of its attributes.
type Accelerator struct {
	Name, Type, State                            string // "dsa0"; "dsa" or "iax"; "enabled"
	Version                                      string
	Node                                         int // -1 unknown
	MaxGroups, MaxQueues, MaxEngines, QueueSizes int // QueueSizes: entries to share between the queues
	MaxTransfer                                  int64
	MaxBatch                                     int // 0: no batches
	ReadBuffers, ReadBufferLimit                 int
	PASID, Configurable                          bool
	OpCap, GenCap, Errors, CmdStatus             string
	Clients, Major                               int // Major: of the character devices; -1 unknown
	Queues                                       []Queue
	Engines                                      int // engines that are in a group
	Groups                                       []Group
}

// A Queue is a work queue of an Accelerator.
type Queue struct {
	Name, State, Mode, Type, Label, Driver  string
	Group, Size, Threshold, Priority, Minor int // Group, Minor -1: none
	BlockOnFault, ATSDisable                bool
	MaxTransfer                             int64
	MaxBatch, Clients                       int
	EnqcmdsRetries                          int
	Occupancy                               int    // entries in use; -1: the device does not count them
	OpConfig                                string // map of the opcodes that it accepts
	Device                                  string // "/dev/dsa/wq0.0"; "" where there is none
	Usable                                  bool   // this process may submit to it
	Why                                     string // why not, and the command that would let it
}

// A Group is a group of an Accelerator: its engines serve its queues. Names of fields are those of its attributes; -1 is not told.
type Group struct {
	Name                                    string
	Engines, Queues                         []string
	TrafficClassA, TrafficClassB            int
	UseReadBufferLimit                      bool
	ReadBuffersAllowed, ReadBuffersReserved int
	DescProgressLimit, BatchProgressLimit   int
}

// CXL is the memory devices and regions of the CXL bus, and the DAX devices that stand on them or on persistent memory.
type CXL struct {
	Memories []CXLMemory
	Ports    []CXLPort
	Decoders []CXLDecoder
	Regions  []CXLRegion
	DAX      []DAX
}

// A CXLMemory is a type-3 device.
type CXLMemory struct {
	Name, Firmware, Serial string
	RAMBytes, PMEMBytes    int64
	Node                   int   // -1: unknown
	LabelBytes, PayloadMax int64 // of label storage; of a mailbox command
}

// A CXLPort is a root, a switch port or an endpoint.
type CXLPort struct {
	Name, Type string // "root0"; its devtype, "" if not told
	Parent     string // the port above it; "" for roots
}

// A CXLDecoder is an address decoder of a port: it says to which targets an address range goes.
type CXLDecoder struct {
	Name, Type        string // devtype: "cxl_decoder_root", "cxl_decoder_endpoint"…
	Start, Bytes      int64
	Locked            bool
	TargetType        string // "expander", "accelerator"
	Targets           []int
	Ways, Granularity int
	Capabilities      []string // of a root: "ram", "pmem", "type2", "type3"
	Mode              string   // of an endpoint: "ram", "pmem", "mixed", "none"
	DPAStart, DPASize int64    // of an endpoint: addresses within the device; -1: not told
	Region            string   // of an endpoint
}

// A CXLRegion is an address range of one or several devices.
type CXLRegion struct {
	Name, UUID        string
	Bytes, Resource   int64 // Resource: its first address
	Ways, Granularity int
	Mode              string // "ram", "pmem"; "" where the kernel does not tell
	Committed         bool
	Targets           []string // decoders
	DAX               string   // its dax device
	TargetNode        int      // the node that it is as system RAM; -1: none
}

// A DAX is a device of the dax bus.
type DAX struct {
	Name             string
	Bytes, Align     int64
	Resource         int64  // first address; -1: not told
	TargetNode, Node int    // -1: none
	Driver           string // "kmem": system RAM; "device_dax": mapped by programs; "": none bound, or not told
	path             string // of its folder, which tells on what it stands
}

// An RDMA is one port of an InfiniBand or RoCE device.
type RDMA struct {
	Device, Firmware, Type string // Type: hca_type
	NodeType               string // "CA"
	Hardware, Board        string // hw_rev, board_id
	PCIVendor, PCIDevice   string // "0x15b3"
	Verbs                  string // "uverbs0": what programs open
	Node                   int    // -1: unknown
	LocalCPUs              []int
	NetDevices             []string

	Port            int
	State, Physical string // "ACTIVE", "LinkUp"
	Link            string // "InfiniBand", "Ethernet"
	Rate            string // "400 Gb/sec (4X NDR)"
	RateGbps        float64
	LID, SMLID      string
	LIDMask, SMSL   int
	Capabilities    string           // cap_mask
	GIDTypes        []string         // "IB/RoCE v1", "RoCE v2", each once
	Counters        map[string]int64 // of counters/; data counters are in units of four bytes
}

// A PowerZone is a RAPL zone.
type PowerZone struct {
	Zone, Name    string // "intel-rapl:0:0", "dram"
	Enabled       bool
	Energy, Range int64 // uJ; Energy -1: may not be read
	Limits        []PowerLimit
}

// A PowerLimit is a constraint of a zone. 0: not told.
type PowerLimit struct {
	Name            string // "long_term"
	Watts, MaxWatts float64
	Seconds         float64 // of the window over which power is averaged
}

// A ThermalZone is a temperature.
type ThermalZone struct {
	Zone, Type   string // "thermal_zone0", "x86_pkg_temp"; for AMD's CPUs "hwmon2", "k10temp"
	Mode, Policy string
	Celsius      float64
	Readable     bool
	Trips        []Trip
}

// A Trip is a temperature at which something happens.
type Trip struct {
	Type    string // "critical", "passive"
	Celsius float64
}

// Resctrl is what the mounted resctrl file system monitors.
type Resctrl struct {
	Features []string // of L3_MON: mbm_total_bytes…
	Domains  []ResctrlDomain
}

// A ResctrlDomain is the counters of one L3, or of one SNC node of it, in bytes. -1: unavailable.
type ResctrlDomain struct {
	L3, Node                int // Node -1: all of the L3
	Total, Local, Occupancy int64
}
