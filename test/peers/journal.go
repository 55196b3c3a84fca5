package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"sort"
)

// journal is the file of what was measured: a line each.
type journal struct {
	path     string
	engines  map[string]string // what is measured now: build ids by "engine build"
	rows     map[string]row
	searches []search
	others   int // lines of other commits or builds
}

// entry is a line of the journal: a row or a search.
type entry struct {
	Engines map[string]string `json:"engines"`
	Row     *row              `json:"row,omitempty"`
	Search  *search           `json:"search,omitempty"`
}

// search is what was tried for a peer on a weight type and test.
type search struct {
	Engine string  `json:"engine"`
	Type   string  `json:"type"`
	Test   string  `json:"test"`
	CPU    string  `json:"cpu,omitempty"`
	Tried  []trial `json:"tried"` // fastest first
}

type trial struct {
	Setup   setup    `json:"setup"`
	Samples []sample `json:"samples"`
}

// rate is the best sample: searching looks for what the peer can do.
func (t trial) rate() float64 {
	best := 0.0
	for _, s := range t.Samples {
		best = max(best, s.TS)
	}
	return best
}

func (s *search) sort() {
	slices.SortStableFunc(s.Tried, func(a, b trial) int {
		switch x, y := a.rate(), b.rate(); {
		case x > y:
			return -1
		case x < y:
			return 1
		}
		return 0
	})
}

// openJournal reads what was measured with the same engines.
func openJournal(path string, engines []engine) (*journal, error) {
	j := &journal{path: path, engines: map[string]string{}, rows: map[string]row{}}
	for _, e := range engines {
		for _, b := range e.builds {
			j.engines[e.name+" "+b.name] = b.id
		}
	}
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return j, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	s := bufio.NewScanner(f)
	s.Buffer(nil, 1<<20)
	for s.Scan() {
		var e entry
		if err := json.Unmarshal(s.Bytes(), &e); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		j.take(e)
	}
	if j.others > 0 {
		fmt.Fprintf(os.Stderr, "peers: %s: %d lines are of other commits or builds; they do not count\n", path, j.others)
	}
	return j, s.Err()
}

// take adds an entry if its engines are those of now. A search holds as long as the peer's builds are the same, whatever ck is.
func (j *journal) take(e entry) {
	same := true
	for name, id := range j.engines {
		own := e.Row == nil && name == ckName+" "
		same = same && (own || e.Engines[name] == id)
	}
	switch {
	case !same:
		j.others++
	case e.Row != nil:
		j.rows[e.Row.key()] = *e.Row
	case e.Search != nil:
		j.searches = append(j.searches, *e.Search)
	}
}

func (j *journal) has(key string) bool { _, ok := j.rows[key]; return ok }

// best is the setup that an earlier search found.
func (j *journal) best(engine string, k job) (setup, bool) {
	for _, s := range j.searches {
		if s.Engine == engine && s.Type == k.Type && s.Test == k.Test && s.CPU == k.CPU {
			return s.Tried[0].Setup, true
		}
	}
	return setup{}, false
}

// keys lists the rows in order.
func (j *journal) keys() []string {
	var keys []string
	for k := range j.rows {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	return keys
}

func (j *journal) save(e entry) error {
	e.Engines = j.engines
	f, err := os.OpenFile(j.path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	b, err := json.Marshal(e)
	if err == nil {
		_, err = f.Write(append(b, '\n'))
	}
	if err = errors.Join(err, f.Close()); err == nil {
		j.take(e)
	}
	return err
}
