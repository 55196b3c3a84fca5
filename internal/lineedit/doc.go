// Package lineedit reads one message from a terminal, edited: by grapheme clusters and cells, over several rows and lines, with older messages
// and a search in them. It knows nothing of chats or models.
//
// An Editor is a state machine: keys change a text, which is laid out in rows. A decoder makes keys of bytes, a screen makes bytes of what
// changed in the rows. None of them knows a terminal; Terminal joins them to one. History keeps messages in a file.
//
// Editors of others were run in tmux 3.3a or read, in November 2026. None stood up:
//   - x/term.Terminal counts runes, spins at 257 Esc bytes, waits for ever at bytes that are no UTF-8, and has neither search nor a file.
//   - peterh/liner 1.2.3 has no bracketed paste: five pasted lines are five messages. It types the rest of sequences that it does not know.
//   - reeflective/readline 1.3.0, of 21,500 lines, types Esc bytes and such rests, ignores Home under TERM=screen, and sent five pasted lines as
//     five messages.
//   - nyaosorg/go-readline-ny 1.9.1 has no bracketed paste and does not hear of a new size.
//   - ergochat/readline, last changed in January 2025, leaves bracketed paste off.
//   - chzyer/readline (2022) and knz/bubbline (2023) had no release since.
package lineedit
