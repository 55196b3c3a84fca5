package tokenizer

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// protoReader reads the fields of a protocol buffer message one after another (protobuf.dev, Encoding).
type protoReader struct {
	b   []byte
	pos int
}

// protoField is one field: a number for wire types 0, 1 and 5, bytes for 2.
type protoField struct {
	num   uint64
	wire  uint64
	value uint64
	bytes []byte
}

func (p *protoReader) varint() (uint64, error) {
	v, n := binary.Uvarint(p.b[p.pos:])
	if n <= 0 {
		return 0, fmt.Errorf("offset %d: a bad number", p.pos)
	}
	p.pos += n
	return v, nil
}

// next reads a field; ok is false at the end.
func (p *protoReader) next() (f protoField, ok bool, err error) {
	if p.pos >= len(p.b) {
		return f, false, nil
	}
	tag, err := p.varint()
	if err != nil {
		return f, false, err
	}
	f.num, f.wire = tag>>3, tag&7
	size := uint64(0)
	switch f.wire {
	case 0:
		f.value, err = p.varint()
		return f, err == nil, err
	case 1:
		size = 8
	case 2:
		if size, err = p.varint(); err != nil {
			return f, false, err
		}
	case 5:
		size = 4
	default:
		return f, false, fmt.Errorf("offset %d: wire type %d", p.pos, f.wire)
	}
	if size > uint64(len(p.b)-p.pos) {
		return f, false, fmt.Errorf("offset %d: a field of %d bytes, %d are left", p.pos, size, len(p.b)-p.pos)
	}
	f.bytes = p.b[p.pos : p.pos+int(size)]
	p.pos += int(size)
	switch f.wire {
	case 1:
		f.value = binary.LittleEndian.Uint64(f.bytes)
	case 5:
		f.value = uint64(binary.LittleEndian.Uint32(f.bytes))
	}
	return f, true, nil
}

// fields calls visit for each field of message b.
func fields(b []byte, visit func(f protoField) error) error {
	p := protoReader{b: b}
	for {
		f, ok, err := p.next()
		if err != nil || !ok {
			return err
		}
		if err := visit(f); err != nil {
			return err
		}
	}
}

// spmModel is a sentencepiece ModelProto (sentencepiece_model.proto), with its defaults.
type spmModel struct {
	text        []string
	scores      []float32
	kind        []uint8
	modelType   uint64 // 1 Unigram, 2 BPE, 3 word, 4 character
	unk         int32
	bos, eos    int32
	suffix      bool // the space stands behind a word
	charsMap    []byte
	dummyPrefix bool
	collapse    bool
	escape      bool
}

func (m *spmModel) parse(b []byte) error {
	*m = spmModel{modelType: 1, bos: 1, eos: 2, dummyPrefix: true, collapse: true, escape: true}
	return fields(b, func(f protoField) error {
		if f.wire != 2 {
			return nil
		}
		switch f.num {
		case 1:
			return m.piece(f.bytes)
		case 2:
			return fields(f.bytes, func(f protoField) error {
				switch f.num {
				case 3:
					m.modelType = f.value
				case 24:
					m.suffix = f.value != 0
				case 40:
					m.unk = int32(f.value)
				case 41:
					m.bos = int32(f.value)
				case 42:
					m.eos = int32(f.value)
				}
				return nil
			})
		case 3:
			return fields(f.bytes, func(f protoField) error {
				switch f.num {
				case 2:
					m.charsMap = f.bytes
				case 3:
					m.dummyPrefix = f.value != 0
				case 4:
					m.collapse = f.value != 0
				case 5:
					m.escape = f.value != 0
				}
				return nil
			})
		}
		return nil
	})
}

func (m *spmModel) piece(b []byte) error {
	text, score, kind := "", float32(0), uint64(typeNormal)
	err := fields(b, func(f protoField) error {
		switch f.num {
		case 1:
			text = string(f.bytes)
		case 2:
			score = math.Float32frombits(uint32(f.value))
		case 3:
			kind = f.value
		}
		return nil
	})
	if err == nil && (kind < typeNormal || kind > typeByte) {
		err = fmt.Errorf("piece %d has type %d, want 1 to 6", len(m.text), kind)
	}
	m.text, m.scores, m.kind = append(m.text, text), append(m.scores, score), append(m.kind, uint8(kind))
	return err
}

// FromSentencePiece makes a tokenizer from the contents of tokenizer.model (a BPE model; Unigram wraps ErrUnsupported) and of
// tokenizer_config.json, which may be nil and may name further tokens.
func FromSentencePiece(model, config []byte) (*Tokenizer, error) {
	c, err := parseConfig(config)
	if err != nil {
		return nil, err
	}
	return openSentencePiece(model, c)
}

func openSentencePiece(model []byte, c *hfConfig) (*Tokenizer, error) {
	t, err := fromSentencePiece(model, c)
	if err != nil {
		return nil, fmt.Errorf("tokenizer.model: %w", err)
	}
	return t, nil
}

func fromSentencePiece(model []byte, c *hfConfig) (*Tokenizer, error) {
	m, err := parseSentencePiece(model)
	if err != nil {
		return nil, err
	}
	return m.tokenizer(c)
}

// parseSentencePiece reads a BPE model.
func parseSentencePiece(model []byte) (*spmModel, error) {
	m := &spmModel{}
	if err := m.parse(model); err != nil {
		return nil, err
	}
	if len(m.text) == 0 {
		return nil, errors.New("it holds no pieces; is this a sentencepiece model?")
	}
	if m.modelType != 2 || m.suffix || !m.escape {
		return nil, fmt.Errorf("model type %d (1 is Unigram, 2 BPE): %w", m.modelType, ErrUnsupported)
	}
	return m, nil
}

func (m *spmModel) tokenizer(c *hfConfig) (*Tokenizer, error) {
	t := &Tokenizer{bos: -1, eos: -1, unknown: -1, collapse: m.collapse}
	t.text, t.kind = m.text, m.kind
	t.setScores(m.scores)
	if t.trimDecoded = m.dummyPrefix && !isFalse(c.AddPrefixSpace); t.trimDecoded {
		t.prefix = prefixControl // user-defined pieces are part of the text, which gets one space at its start
	}
	cm, err := parseCharMap(m.charsMap)
	if err != nil {
		return nil, err
	}
	if cm != nil {
		t.normal = append(t.normal, normStep{charMap: cm})
	}
	var list []special
	for id, k := range t.kind {
		if k == typeControl || k == typeUnknown || k == typeUserDefined {
			// User-defined pieces are found in the text before its spaces are written as U+2581.
			if k == typeUserDefined {
				t.text[id] = strings.ReplaceAll(t.text[id], escapedSpace, " ")
			}
			list = append(list, special{text: t.text[id], id: int32(id), control: k != typeUserDefined})
		}
	}
	added, err := c.added()
	if err != nil {
		return nil, err
	}
	more, err := t.addTokens(added)
	if err != nil {
		return nil, err
	}
	list = append(more, list...) // of two with the same text the first counts
	for len(t.priority) < len(t.text) {
		t.priority = append(t.priority, math.MaxUint32)
	}
	for _, e := range []struct {
		dst *int32
		id  int32
	}{{&t.bos, m.bos}, {&t.eos, m.eos}, {&t.unknown, m.unk}} {
		if e.id >= 0 && int(e.id) < len(t.text) {
			*e.dst = e.id
		}
	}
	t.pickIDs(list, c)
	if err := t.build(formEscaped); err != nil {
		return nil, err
	}
	t.setConfig(list, c, true)
	return t, nil
}

// added lists added_tokens_decoder, and of other files the tokens that it lacks, in order of id.
func (c *hfConfig) added() ([]hfToken, error) {
	var out []hfToken
	listed := map[int64]bool{}
	for key, a := range c.AddedTokens {
		id, err := strconv.ParseInt(key, 10, 32)
		if err != nil {
			return nil, fmt.Errorf("tokenizer_config.json: added_tokens_decoder: %q is no id", key)
		}
		a.ID = id
		listed[id] = true
		out = append(out, a)
	}
	for _, a := range c.more {
		if !listed[a.ID] {
			out = append(out, a)
		}
	}
	slices.SortStableFunc(out, func(a, b hfToken) int { return cmp.Compare(a.ID, b.ID) })
	return out, nil
}
