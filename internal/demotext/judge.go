package demotext

import (
	_ "embed"
	"strings"
)

//go:embed grammar/judgewords.txt
var judgeText string

// Judge counts which sentences of a model's text are sound. It shares no code and no list with Filter, whose doc says how both differ.
type Judge struct {
	known  map[string]struct{}
	verbs  map[string]struct{}
	recent []string            // the sentences of the text so far, without marks
	names  map[string]struct{} // words that the text has with a capital within a sentence
}

// A Judgement is a sentence and what is wrong with it, "" if nothing is.
type Judgement struct {
	Sentence string
	Fault    string // "quotes", "unknown WORD", "no verb", "repeats", "no end"
}

const judgePasts = "was were is are am be been had has have did do does done said went came saw got made took gave found thought knew told felt " +
	"kept ran sat stood ate drank slept woke flew fell held heard left lost brought bought built broke began caught chose cut put " +
	"hit let hurt drew drove rode rose wrote read sang swam rang threw grew blew taught sent spent met hid bit shook shone spoke " +
	"stole wore won dug stuck swung hung fed fought forgot forgave froze showed sold swept tore spun paid led meant lit crept " +
	"became understood lay laid knelt leapt leaned shot sank sprang could would should will can may might must shall cannot set " +
	"shut cost seen gone taken given eaten known shown broken hidden says goes comes sees gets makes takes gives finds thinks knows " +
	"tells feels want wants like likes love loves need needs see go come look looks think know say play plays help helps make find " +
	"get feel hear stay try live lives run eat wait stop use ask asks give take tell keep let's thank hope wish please sounds " +
	"smells tastes eats runs smiles laughs nods hugs opens puts wrote sleeps"

// judgePresents are verbs of which the present counts too, with and without -s.
const judgePresents = "add agree answer bark bake beg begin believe blow bounce bring build buy buzz call carry catch chase cheer clap clean climb " +
	"close color come cook count crash crawl creep cry cut dance decide decorate dig do draw dream drink drive drop enjoy explain " +
	"explore fall feed fight fill finish fix flap float fly follow forget forgive gasp giggle give glow grab greet grow grunt hand " +
	"hang happen hate hide hit hold hop hug hurry invite join jump kick kiss knock land laugh lean learn leave lick lift like " +
	"listen live lose march mean meet melt miss mix move nod notice offer open paint pat pick plan point pour practice pretend " +
	"promise pull push put raise reach read realize remember reply rest return ride roar roll rub rush sail save scare search see " +
	"seem sell send set shake share shine shout show sigh sing sit skip sleep slide smell smile sniff sparkle speak spend spin " +
	"splash spread stand stare start stay step stick sting stir struggle surprise swim swing take talk taste teach tell thank throw " +
	"tickle touch try turn twirl visit wag wait wake walk wander wash watch wave wear whisper win wink wipe wonder work worry wrap " +
	"write yawn yell beat hear trust care chew bite lie blink"

// NewJudge makes a judge; it may be used for one text after the other.
func NewJudge() *Judge {
	j := &Judge{known: map[string]struct{}{}, verbs: map[string]struct{}{}}
	for line := range strings.Lines(judgeText) {
		if !strings.HasPrefix(line, "#") {
			for _, w := range strings.Fields(line) {
				j.known[w] = struct{}{}
			}
		}
	}
	for _, w := range strings.Fields(judgePasts) {
		j.verbs[w], j.known[w] = struct{}{}, struct{}{}
	}
	for _, w := range strings.Fields(judgePresents) {
		j.verbs[w], j.verbs[w+"s"], j.verbs[w+"es"] = struct{}{}, struct{}{}, struct{}{}
		if stem, ok := strings.CutSuffix(w, "y"); ok {
			j.verbs[stem+"ies"] = struct{}{}
		}
	}
	return j
}

// Sentences judges each sentence of a text. Of a text with an odd number of quote marks, the sentence with the last mark has the fault.
func (j *Judge) Sentences(text string) (list []Judgement) {
	j.recent, j.names = nil, map[string]struct{}{}
	words := strings.Fields(text)
	for i, w := range words {
		if i > 0 && w[0] >= 'A' && w[0] <= 'Z' && strings.IndexByte(`.!?"`, words[i-1][len(words[i-1])-1]) < 0 {
			j.names[strings.ToLower(bare(w))] = struct{}{}
		}
	}
	lastMark := -1
	if strings.Count(text, `"`)%2 == 1 {
		lastMark = strings.LastIndexByte(text, '"')
	}
	for from := 0; from < len(text); {
		to := sentenceEnd(text, from)
		s := strings.TrimSpace(text[from:to])
		if s != "" && s != `"` {
			fault := j.fault(s)
			if lastMark >= from && lastMark < to {
				fault = "quotes"
			}
			list = append(list, Judgement{s, fault})
		}
		from = to
	}
	return list
}

// sentenceEnd is behind the next mark that ends a sentence, and the quote mark behind it; where a small letter follows, the sentence goes on.
func sentenceEnd(s string, from int) int {
	for i := from; i < len(s); i++ {
		if s[i] != '.' && s[i] != '!' && s[i] != '?' {
			continue
		}
		for i+1 < len(s) && strings.IndexByte(`.!?"`, s[i+1]) >= 0 {
			i++
		}
		next := strings.TrimLeft(s[i+1:], " \n")
		if next == "" || next[0] < 'a' || next[0] > 'z' {
			return i + 1
		}
	}
	return len(s)
}

// bare is a word without the marks around it and without 's.
func bare(w string) string { return strings.TrimSuffix(strings.Trim(w, `.,!?";:()-'`), "'s") }

func (j *Judge) fault(s string) string {
	if strings.IndexByte(`.!?"`, s[len(s)-1]) < 0 {
		return "no end"
	}
	var words []string
	verb := false
	for i, field := range strings.Fields(s) {
		w := bare(field)
		short := strings.TrimRight(field, `.,!?";:`) != w // it's, that's, he's
		verb = verb || (short && strings.Contains(" it that he she there what here who let ", " "+strings.ToLower(w)+" "))
		if w == "" {
			continue
		}
		low := strings.ToLower(w)
		if strings.Contains(low, "-") { // of "ice-cream", its parts are looked up
			low = low[strings.LastIndexByte(low, '-')+1:]
		}
		_, name := j.names[low]
		if !j.knows(low) && !(name && low != w) && strings.Trim(w, "0123456789") != "" {
			return "unknown " + low
		}
		words = append(words, low)
		_, listed := j.verbs[low]
		verb = verb || listed || (strings.HasSuffix(low, "ed") && len(low) > 3) || (i > 0 && strings.HasSuffix(low, "ing") && len(low) > 5) ||
			strings.HasSuffix(low, "n't") ||
			strings.HasSuffix(low, "'m") || strings.HasSuffix(low, "'re") || strings.HasSuffix(low, "'ll")
	}
	if j.repeats(words) {
		return "repeats"
	}
	if len(words) > 3 && !verb && !strings.Contains(s, `"`) {
		return "no verb"
	}
	return ""
}

// repeats reports whether three words stand three times in a sentence, a word four times in a row, or a sentence of more than three words for the
// third time in its text.
func (j *Judge) repeats(words []string) bool {
	whole := strings.Join(words, " ")
	same := 0
	for _, s := range j.recent {
		if s == whole {
			same++
		}
	}
	j.recent = append(j.recent, whole)
	threes := map[[3]string]int{}
	for i := 2; i < len(words); i++ {
		t := [3]string{words[i-2], words[i-1], words[i]}
		if threes[t]++; (threes[t] == 3 && t[0] != t[1]) || (i > 2 && t[0] == t[1] && t[1] == t[2] && words[i-3] == t[0]) {
			return true
		}
	}
	return same >= 2 && len(words) > 3
}

// knows reports whether a word, or what is left of it without an ending, is in the list.
func (j *Judge) knows(w string) bool {
	if _, ok := j.known[w]; ok {
		return true
	}
	for _, end := range []string{"'s", "'", "s", "es", "ed", "d", "ing", "ly", "er", "est", "n't", "'m", "'re", "'ll", "'ve", "'d"} {
		stem, ok := strings.CutSuffix(w, end)
		if !ok || len(stem) < 2 {
			continue
		}
		forms := []string{stem, stem + "e"}
		if n := len(stem); stem[n-1] == stem[n-2] {
			forms = append(forms, stem[:n-1])
		}
		for _, f := range forms {
			if _, ok := j.known[f]; ok {
				return true
			}
		}
	}
	return false
}
