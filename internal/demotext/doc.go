// Package demotext makes the training text of the built-in model: stories and dialogues from grammars of its own, stories of a language model that pass a
// rule check, real stories and books, and the part that is held out.
//
// The grammars are the files under grammar; a story or a talk is a function of (seed, number), and no stream gives one twice. Held out are a share of the
// real stories, with whatever has passages in common on one side, and a fixed list of questions. Sampling belongs to the caller: Write takes candidates
// as a sequence.
package demotext
