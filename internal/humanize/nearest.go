package humanize

import "slices"

// Nearest are the n names that are nearest to a word, with which a user may have meant them.
func Nearest(word string, names []string, n int) []string {
	names = slices.Clone(names)
	slices.SortStableFunc(names, func(a, b string) int { return Distance(word, a) - Distance(word, b) })
	return names[:min(n, len(names))]
}

// Distance is the Levenshtein distance of two short texts in bytes. One of more than 64 bytes is as far as it is long.
func Distance(a, b string) int {
	if len(b) > 64 {
		return len(b)
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diag := row[0]
		row[0] = i + 1
		for j := range len(b) {
			d := diag
			if a[i] != b[j] {
				d++
			}
			diag = row[j+1]
			row[j+1] = min(d, row[j]+1, diag+1)
		}
	}
	return row[len(b)]
}
