package cli

import (
	"fmt"
	"runtime"
	"runtime/debug"

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
	return VersionInfo{"ck.version/1", a.Name, Version, commit, runtime.Version(), runtime.GOOS, runtime.GOARCH, isa.Best(isa.Detect()).String()}
}

func (a *App) printVersion() error {
	v := a.versionInfo()
	if a.Common.JSON {
		return a.PrintJSON(v)
	}
	_, err := fmt.Fprintf(a.Out, "%s %s (commit %s, %s, %s/%s, tier %s)\n", v.Program, v.Version, v.Commit, v.Go, v.OS, v.Arch, v.Tier)
	return OutError(err)
}
