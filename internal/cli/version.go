package cli

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"

	"golang.org/x/sys/unix"

	"ck/internal/isa"
)

// Version and Commit may be set by the linker (-X); else the commit is the one that the Go command recorded, if any.
var (
	Version = "0.1.0-dev"
	Commit  = ""
)

// VersionInfo is what --version --json prints.
type VersionInfo struct {
	Schema  string `json:"schema"`
	Program string `json:"program"`
	Version string `json:"version"`
	Commit  string `json:"commit"`
	Go      string `json:"go"`
	OS      string `json:"os"`
	Arch    string `json:"arch"`
	Tier    string `json:"tier"`
	Static  bool   `json:"static"`
}

// isStatic reports whether this program runs without the machine's C library. One that go build made where CGO_ENABLED is not 0 and a C compiler
// is installed needs it: packages net and os/user, which others import, choose so, and nothing in a module can choose for them.
func isStatic() bool {
	const atBase = 7 // AT_BASE of elf.h: where the program's interpreter lies, 0 without one
	aux, err := unix.Auxv()
	return err != nil || !slices.ContainsFunc(aux, func(kv [2]uintptr) bool { return kv[0] == atBase && kv[1] != 0 })
}

func (a *App) versionInfo() VersionInfo {
	commit := Commit
	if info, ok := debug.ReadBuildInfo(); ok && commit == "" {
		modified := ""
		for _, s := range info.Settings {
			switch {
			case s.Key == "vcs.revision":
				commit = s.Value[:min(12, len(s.Value))]
			case s.Key == "vcs.modified" && s.Value == "true":
				modified = "+changes"
			}
		}
		commit += modified
	}
	if commit == "" {
		commit = "unknown"
	}
	return VersionInfo{"ck.version/1", a.Name, Version, commit, runtime.Version(), runtime.GOOS, runtime.GOARCH, isa.Best(isa.Detect()).String(), isStatic()}
}

func (a *App) printVersion() error {
	v := a.versionInfo()
	if a.Common.JSON || a.Common.JSONL { // no settings were read yet
		return a.PrintJSON(v)
	}
	linked := "static"
	if !v.Static {
		linked = "needs this machine's C library: CGO_ENABLED=0 go build makes a static one"
	}
	_, err := fmt.Fprintf(a.Out, "%s %s (commit %s, %s, %s/%s, tier %s, %s)\n", v.Program, v.Version, v.Commit, v.Go, v.OS, v.Arch, v.Tier, linked)
	return OutError(err)
}
