package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"

	"ck/internal/advice"
	"ck/internal/cli"
	"ck/internal/cost"
)

// planned lists the machines that --machine names, or the one at hand, with the values of the command line put in.
func (o *planOptions) planned() ([]advice.Machine, error) {
	var out []advice.Machine
	if o.machines == "" {
		x, err := o.here()
		if err != nil {
			return nil, err
		}
		out = append(out, x)
	} else {
		if o.measure {
			return nil, cli.Usage("--measure: measures this machine, not one that is described; leave out --machine")
		}
		for name := range strings.SplitSeq(o.machines, ",") {
			x, err := namedMachine(strings.TrimSpace(name))
			if err != nil {
				return nil, err
			}
			out = append(out, advice.Machine{Machine: x, Limit: int64(x.MemoryGiB * (1 << 30))})
		}
	}
	if o.measure && (o.peak != "" || o.bandwidth > 0) {
		return nil, cli.Usage("--measure: measures what --bandwidth and --peak give; leave out one or the other")
	}
	if o.bandwidth > 0 && o.bandwidth < 0.01 {
		return nil, cli.Usage("--bandwidth: %g GB/s is too little for any machine", o.bandwidth)
	}
	peaks, err := advice.ParsePeak(o.peak)
	if err != nil {
		return nil, cli.Usage("%w", err)
	}
	for i := range out {
		x := &out[i]
		x.CPU = o.app.Common.CPU
		if l := o.app.Common.MemLimit; l > 0 {
			x.Limit = l
		}
		threads := o.app.Common.Threads
		if threads == 0 {
			threads = x.Cores
		}
		x.SetRoofs(peaks, o.bandwidth, threads)
		if o.measure {
			if err := measureRoofs(x, threads); err != nil {
				return nil, err
			}
		}
	}
	return out, nil
}

// here is this machine, or that of --root.
func (o *planOptions) here() (advice.Machine, error) {
	s, err := o.survey()
	if err != nil {
		return advice.Machine{}, err
	}
	x, err := advice.Surveyed(&s)
	return x, inputError(err)
}

// namedMachine is a built-in machine, or the one that a file describes.
func namedMachine(name string) (cost.Machine, error) {
	if x, ok := cost.FindMachine(name); ok {
		return x, nil
	}
	if _, err := os.Stat(name); err != nil && filepath.Ext(name) == "" && !strings.ContainsRune(name, '/') {
		return cost.Machine{}, cli.Usage("--machine: %q is neither a file nor one of %s", name, strings.Join(cost.MachineNames(), ", "))
	}
	x, err := advice.ReadMachine(name)
	return x, inputError(err)
}

// measureRoofs is --measure.
func measureRoofs(x *advice.Machine, threads int) error {
	err := x.MeasureRoofs(threads)
	switch {
	case errors.Is(err, advice.ErrOtherMachine):
		return cli.Usage("--measure: %w; leave out --root", err)
	case errors.Is(err, advice.ErrNoRoom):
		return cli.Resource("--measure: %w; give --bandwidth and --peak", err)
	}
	return err
}
