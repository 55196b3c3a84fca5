package probe

import (
	"math"
	"runtime"
	"strconv"
	"strings"
	"time"

	"ck/internal/topo"
)

// spin makes 16·n additions and exclusive ors, each of which needs the result of the one before: a cycle each.
func spin(n int) uint64 {
	x, y := uint64(n), uint64(1)
	for range n {
		x += y
		y ^= x
		x += y
		y ^= x
		x += y
		y ^= x
		x += y
		y ^= x
		x += y
		y ^= x
		x += y
		y ^= x
		x += y
		y ^= x
		x += y
		y ^= x
	}
	return x
}

// clock finds the frequency of a busy core by counting cycles: after a rest, then at its best. What else runs there cannot make it look
// faster.
func (h *taking) clock(cpus []int, quota int) error {
	t, err := newTeam(cpus, quota)
	if err != nil {
		return err
	}
	defer t.Close()
	const rounds = 1 << 12 // 16 us at 4 GHz
	type slice struct{ at, hz float64 }
	var slices []slice
	sink := uint64(0)
	err = t.Run(func(int) {
		sink += spin(rounds)
		time.Sleep(rest)
		begin := time.Now()
		for now := begin; now.Sub(begin) < 60*clockSlice; {
			best, end := math.Inf(1), now.Add(clockSlice)
			from := now
			for now.Before(end) {
				sink += spin(rounds)
				next := time.Now()
				best = min(best, next.Sub(now).Seconds())
				now = next
			}
			slices = append(slices, slice{from.Sub(begin).Seconds(), 16 * rounds / best})
		}
	})
	runtime.KeepAlive(sink)
	if err != nil || len(slices) == 0 {
		return err
	}
	h.ClockFirst = slices[0].hz
	for _, x := range slices {
		h.Clock = max(h.Clock, x.hz)
	}
	for _, x := range slices {
		if x.hz >= 0.95*h.Clock {
			h.Ramp = x.at
			break
		}
	}
	return nil
}

// statedClock is what the system says of the frequency without boost, and who says it; 0 if nobody does.
func statedClock(s *topo.Survey) (hz float64, by string) {
	if n, err := strconv.ParseFloat(sysText("/sys/devices/system/cpu/cpu0/cpufreq/base_frequency"), 64); err == nil && n > 0 {
		return n * 1e3, "base_frequency"
	}
	if _, after, ok := strings.Cut(s.Model, "@ "); ok {
		if n, err := strconv.ParseFloat(strings.TrimSuffix(after, "GHz"), 64); err == nil && n > 0 {
			return n * 1e9, "the CPU's name"
		}
	}
	if s.Settings.Driver != "" {
		return 0, "" // where the frequency is governed, /proc/cpuinfo has that of this moment
	}
	for line := range strings.Lines(sysText("/proc/cpuinfo")) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == "cpu MHz" {
			if n, err := strconv.ParseFloat(strings.TrimSpace(value), 64); err == nil && n > 0 {
				return n * 1e6, "/proc/cpuinfo"
			}
		}
	}
	return 0, ""
}
