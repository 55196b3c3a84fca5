package main

import (
	"fmt"
	"strconv"
	"strings"

	"ck/internal/cli"
)

// maxList bounds what a list of numbers may become.
const maxList = 1000

// parseList reads "1,2,4", "1-8", "1-8+2" and "1-8*2", and mixtures of them, as llama-bench does. flag names the flag in errors.
func parseList(flag, s string, lo, hi int) ([]int, error) {
	var out []int
	for part := range strings.SplitSeq(s, ",") {
		first, rest, isRange := strings.Cut(strings.TrimSpace(part), "-")
		a, err := strconv.Atoi(first)
		b, step, times := a, 1, 1
		if isRange && err == nil {
			if end, s, ok := strings.Cut(rest, "+"); ok {
				rest = end
				step, err = strconv.Atoi(s)
			} else if end, s, ok := strings.Cut(rest, "*"); ok {
				rest, step = end, 0
				times, err = strconv.Atoi(s)
			}
			if err == nil {
				b, err = strconv.Atoi(rest)
			}
		}
		switch {
		case err != nil || b < a || step < 0 || step == 0 && (times < 2 || a < 1) || step > 0 && times != 1:
			return nil, cli.Usage("%s: %q is no list such as 1,2,4 or 1-8 or 1-8*2", flag, s)
		case a < lo || b > hi:
			return nil, cli.Usage("%s: %s is not in %d..%d", flag, part, lo, hi)
		}
		for n := a; n <= b; n = n*times + step {
			if out = append(out, n); len(out) > maxList {
				return nil, cli.Usage("%s: more than %d numbers; name fewer", flag, maxList)
			}
			if step == 0 && times < 2 {
				break
			}
		}
	}
	return out, nil
}

// parsePairs reads lists of "512,128".
func parsePairs(flag string, list []string, hi int) ([][2]int, error) {
	var out [][2]int
	for _, s := range list {
		var p [2]int
		n, err := fmt.Sscanf(s+" ", "%d,%d ", &p[0], &p[1])
		if err != nil || n != 2 || strings.Count(s, ",") != 1 || p[0] < 1 || p[1] < 1 || p[0] > hi || p[1] > hi {
			return nil, cli.Usage("%s: %q is no pair such as 512,128 with numbers in 1..%d", flag, s, hi)
		}
		out = append(out, p)
	}
	return out, nil
}
