package main

import (
	"strings"

	"github.com/spf13/cobra"

	"ck/internal/cli"
	"ck/internal/gather"
	"ck/internal/humanize"
)

func (p *program) gatherCommand() {
	c := p.app.NewCommand("gather FILE.tgz [flags]", "save what the page is made of, for a bug report",
		`Copies the files that tell of the machine into a tar file packed with gzip: those that the page is made of, and no others. "cktopo --root FILE.tgz" shows the same page from it, on any machine.

Host names, serial numbers, MAC addresses and GUIDs are left out. Look into it before you send it: tar tzf FILE.tgz.`,
		func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return cli.Usage("gather: wants the name of one file; see cktopo gather --help")
			}
			return p.gather(args[0])
		})
	cli.NewGroup(c.Flags(), "Output").Bool(&p.force, "force", "", "overwrite FILE.tgz")
}

// gathered is what gather reports.
type gathered struct {
	Schema     string   `json:"schema"`
	File       string   `json:"file"`
	Bytes      int64    `json:"bytes"` // of the files, unpacked
	Files      int      `json:"files"`
	Redacted   []string `json:"redacted"`
	Unreadable []string `json:"unreadable"`
}

func (p *program) gather(file string) error {
	if file != "-" && !strings.HasSuffix(file, ".tgz") && !strings.HasSuffix(file, ".tar.gz") {
		return cli.Usage("%s: --root reads .tgz and .tar.gz; name it so", file)
	}
	if file == "-" && p.app.Common.JSON {
		return cli.Usage("gather: both the archive and --json would go to stdout; name a file")
	}
	fsys, live, err := p.files()
	if err != nil {
		return err
	}
	defer closeFiles(fsys)
	r := gather.NewRecorder(fsys)
	if err := r.Record(live); err != nil {
		return inputError(err)
	}
	t, err := r.Archive(gather.HostName(fsys, live))
	if err != nil {
		return cli.Resource("%w", err)
	}
	out, err := p.app.Create(file, p.force)
	if err != nil {
		return err
	}
	defer out.Abort()
	if err := t.Write(out); err != nil {
		return cli.OutError(err)
	}
	if err := out.Commit(); err != nil {
		return err
	}
	g := gathered{"ck.topo.gather/1", file, t.Bytes, t.Files, t.Redacted, t.Unreadable}
	if p.app.Common.JSON {
		return p.app.PrintJSON(g)
	}
	if !p.app.Common.Quiet {
		p.app.Note("%s: %s, %s; left out of %d, %d could not be read", file, humanize.Plural(g.Files, "file"), humanize.IBytes(g.Bytes),
			len(g.Redacted), len(g.Unreadable))
	}
	return nil
}
