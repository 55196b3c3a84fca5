package findings

import (
	"fmt"

	"ck/internal/humanize"
)

// clockText is the frequency of a busy core beside what the system says.
func clockText(s *Subject) string {
	h := s.Here
	switch {
	case h.Clock == 0:
		return ""
	case h.Stated == 0:
		return "a busy core runs at " + humanize.Hertz(h.Clock)
	}
	return fmt.Sprintf("a busy core runs at %s; %s says %s", humanize.Hertz(h.Clock), h.StatedBy, humanize.Hertz(h.Stated))
}

// scaling is how much slower cores compute when all of them do.
func scaling(s *Subject) string {
	h := s.Here
	if h.OpsOne == 0 || h.OpsAll == 0 || h.Threads < 2 {
		return ""
	}
	return fmt.Sprintf("%s compute %.1f times as fast as one, for a few milliseconds", humanize.Plural(h.Threads, "core"), h.OpsAll/h.OpsOne)
}

// throttling is what workers get under the quota.
func throttling(s *Subject) string {
	h := s.Here
	if h.Got == 0 {
		return ""
	}
	return fmt.Sprintf("%s got the time of %.2f CPUs and stood still for up to %s", humanize.Plural(h.Threads, "worker"), h.Got, humanize.Milliseconds(h.Pause))
}

// smallAndHuge compares the sizes of pages.
func smallAndHuge(s *Subject) string {
	a, b := s.Here.Small, s.Here.Huge
	if a.Read == 0 || b.Read == 0 {
		return ""
	}
	return fmt.Sprintf("one core reads pages of 4 KiB at %s, huge pages at %s; a jump to another page takes %s instead of %s",
		humanize.GBps(a.Read), humanize.GBps(b.Read), humanize.Nanoseconds(a.Jump), humanize.Nanoseconds(b.Jump))
}

// nearAndFar is the rates as an effect.
func nearAndFar(s *Subject) string {
	if s.Here.Near == 0 || s.Here.Far == 0 {
		return ""
	}
	return fmt.Sprintf("a core of that node reads them at %s, one of the farthest node at %s", humanize.GBps(s.Here.Near), humanize.GBps(s.Here.Far))
}
