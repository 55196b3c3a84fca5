package template

import (
	"testing"
	"time"
)

// TestStrftime: midnight, noon and the turns of years, as Python's strftime writes them.
func TestStrftime(t *testing.T) {
	tmpl, err := Parse("time", "{{ strftime_now('%I %l %p %P %G-%V %g %U %W %j %u %w %C %y %-d %_H %^a %r') }}")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		now  time.Time
		want string
	}{
		{time.Date(2021, 1, 1, 0, 5, 9, 0, time.UTC), "12 12 AM am 2020-53 20 00 00 001 5 5 20 21 1  0 FRI 12:05:09 AM"},
		{time.Date(2024, 12, 30, 12, 0, 0, 0, time.UTC), "12 12 PM pm 2025-01 25 52 53 365 1 1 20 24 30 12 MON 12:00:00 PM"},
		{time.Date(2023, 1, 1, 23, 59, 59, 0, time.UTC), "11 11 PM pm 2022-52 22 01 00 001 7 0 20 23 1 23 SUN 11:59:59 PM"},
	} {
		if got, err := tmpl.Render(nil, Options{Now: c.now}); err != nil || got != c.want {
			t.Errorf("%v:\n got %q, %v\nwant %q", c.now, got, err, c.want)
		}
	}
}
