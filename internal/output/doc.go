// Package output shows what a model generates: text as it comes with its reasoning, token ids, one JSON document or events, then warnings and
// statistics. It generates nothing and knows no flags.
package output
