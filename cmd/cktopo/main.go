// Command cktopo knows the machine: what it is, what is wrong with it for a model, what a model would do on it.
package main

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	"ck/internal/cli"
	"ck/internal/findings"
	"ck/internal/topo"
)

//go:generate sh -c "go run . --man > ../../man/cktopo.1"
//go:generate sh -c "go run . --completion bash > ../../man/completions/cktopo.bash"
//go:generate sh -c "go run . --completion zsh > ../../man/completions/_cktopo"
//go:generate sh -c "go run . --completion fish > ../../man/completions/cktopo.fish"
//go:generate sh -c "cat ../../man/*.1 | tr -d '\\134' | sed -n 's/^[.]B .*--//p' | grep -o '^[a-z][a-z0-9-]*' | LC_ALL=C sort -u > ../../internal/cli/flags.txt"

// heapBytes makes the garbage collector work harder beyond it: a tree that a stranger sent must not take more than 100 MB.
const heapBytes = 80 << 20

func main() {
	debug.SetMemoryLimit(heapBytes)
	newProgram().app.Main()
}

// program is one run of cktopo.
type program struct {
	app   *cli.App
	root  string // of a saved tree; "": this machine
	draw  bool
	width int
	svg   string
	png   string
	force bool

	noMeasure bool
}

const long = `Shows what this machine is, as the kernel tells it: packages, memory nodes and their distances, caches, cores, limits of the container, instruction sets, accelerators, power, settings. What the kernel does not tell is said to be not told.

With --root it shows another machine, from a tree that "cktopo gather" saved there.`

func newProgram() *program {
	p := &program{}
	p.app = cli.New("cktopo", "[flags]", "know the machine", long)
	p.app.AddLinesFlag()
	p.app.Doc = manSections
	p.app.Root.Example = examples
	p.app.Root.RunE = func(_ *cobra.Command, args []string) error {
		if len(args) > 0 {
			return cli.Usage("%s: no such command; see cktopo --help", args[0])
		}
		return p.show()
	}
	g := cli.NewGroup(p.app.Root.PersistentFlags(), "Machine")
	g.Text(&p.root, "root", "", "", "DIR|FILE.tgz", "a saved tree instead of this machine")
	g = cli.NewGroup(p.app.Root.Flags(), "Showing")
	g.Bool(&p.draw, "draw", "", "a drawing in characters instead of the table")
	p.widthFlag(g)
	g.Text(&p.svg, "svg", "", "", "FILE", "write a picture to FILE as SVG (- is stdout, instead of the table)")
	g.Text(&p.png, "png", "", "", "FILE", "the same as PNG")
	g.Bool(&p.force, "force", "", "overwrite FILE")
	p.checkCommand()
	newPlan(p.app, p.survey)
	p.gatherCommand()
	p.app.AddConfigCommand()
	return p
}

// widthFlag adds --width.
func (p *program) widthFlag(g cli.Group) {
	g.Int(&p.width, "width", "", 0, minWidth, 1000, "N", "columns of the output; default: those of the terminal, else COLUMNS")
}

// files is what is read: this machine, or the saved tree.
func (p *program) files() (fsys fs.FS, live bool, err error) {
	if p.root == "" {
		return os.DirFS("/"), true, nil
	}
	fsys, err = topo.Open(p.root)
	return fsys, false, inputError(err)
}

// survey reads the machine.
func (p *program) survey() (topo.Survey, error) {
	fsys, live, err := p.files()
	if err != nil {
		return topo.Survey{}, err
	}
	defer closeFiles(fsys)
	s, err := topo.Inspect(fsys, live)
	return s, inputError(err)
}

// closeFiles frees what a saved tree holds open.
func closeFiles(fsys fs.FS) {
	if c, ok := fsys.(io.Closer); ok {
		c.Close()
	}
}

// inputError makes an error of the tree one of the input.
func inputError(err error) error {
	if err == nil {
		return nil
	}
	return cli.Input("%w", err)
}

const examples = `  cktopo
  cktopo --draw
  cktopo --svg machine.svg
  cktopo check
  cktopo check -m model.gguf
  cktopo gather machine.tgz
  cktopo --root machine.tgz check
  cktopo --json | jq .nodes
`

// checkList names all tests with what they read.
func checkList() string {
	var b strings.Builder
	b.WriteString("What check looks at, what a finding is worth, and where the facts come from:\n\n")
	for _, x := range findings.Rules() {
		fmt.Fprintf(&b, "  %-22s  %-7s  %s\n", x.ID, x.Severity, x.Reads)
	}
	return b.String()
}

var manSections = []cli.Section{
	{Title: "Checks", Text: checkList()},
	{Title: "JSON", Text: `--json prints one document, schema ck.topo/1: schema, root (the saved tree, "" for this machine), workers (the CPUs on which a model's workers would run, and why), memory_available (bytes, and why), homes (memory nodes, in the order in which memory is taken, and the cores and their siblings that work there; homes_note says what was joined or left out), and the facts under the names of the table's sections. Lists are of numbers of CPUs and nodes. Sizes are bytes, unless the name says otherwise: latencies of memory are ns, its bandwidths MiB/s, energies uJ, limits watts, durations seconds. null is not told; so is -1 for a node, a package or a tier.

check --json prints schema ck.topo.check/1: matters (how many findings do), findings, each with id, severity (serious, minor or note), what, effect, basis (of the effect: computed or stated), measured ("" where the effect was not), mend (one command a line); looked_at, the number of tests that were made; unknown, the ids of those whose files are not there; unmeasured, of those that need a measurement; measured, the figures (null without any; 0 is not measured, not_measured says why; rates are bytes or operations a second, times seconds); model, where the pages of --model lie (null without it).

--jsonl prints check's findings one by one, schema ck.topo.check.finding/1, and plan's plans, schema ck.topo.plan.machine/1, an object a line; other commands their document on one line.

gather --json prints schema ck.topo.gather/1: file, bytes, files, redacted, unreadable.`},
	{Title: "Saved trees", Text: `A saved tree is a folder, or a tar file packed with gzip, that holds sys, proc and, where they are mounted elsewhere, the cgroups. Symbolic links in it are relative. gather makes one from the files that the page was made of, and no others. It leaves out host names, serial numbers, MAC addresses, GUIDs, the descriptions of InfiniBand nodes, and of the kernel's command line all but what concerns CPUs and memory. Files that could not be read are named in errors.txt, with the reason.`},
}
