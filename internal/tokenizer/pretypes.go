package tokenizer

import "strings"

// The pre-tokenizers that the key tokenizer.ggml.pre names: the names of llama.cpp (src/llama-vocab.cpp, MIT) with the regular
// expressions of the tokenizers they stand for. Where llama.cpp runs an adapted expression and quotes the original, the
// original stands here: words with combining marks are then cut as the model was trained to see them. The two names whose
// expression llama.cpp replaces by code (kimi-k2, afmoe) have an expression that says the same.

const (
	endings     = `'s|'t|'re|'ve|'m|'ll|'d`
	endingsFold = `(?i:` + endings + `)`
	endingsCase = `(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])`

	blanks = `\s*[\r\n]+|\s+(?!\S)|\s+`
	word   = `[^\r\n\p{L}\p{N}]?\p{L}+`
	signs  = ` ?[^\s\p{L}\p{N}]+[\r\n]*`

	exprGPT2     = endings + `| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)`
	exprLlama3   = endingsFold + `|` + word + `|\p{N}{1,3}|` + signs + `|` + blanks
	exprDBRX     = endingsCase + `|` + word + `|\p{N}{1,3}|` + signs + `|` + blanks
	exprQwen2    = endingsFold + `|` + word + `|\p{N}|` + signs + `|` + blanks
	exprLaguna   = endingsCase + `|` + word + `|\p{N}|` + signs + `|` + blanks
	exprQwen35   = endingsFold + `|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|` + blanks
	exprMiniCPM5 = endingsFold + `|` + word + `|\p{N}+|` + signs + `|` + blanks
	exprJais2    = endingsFold + `|` + word + `|\p{N}{1,3}|` + signs + `|\s*[\r\n]+|\s{512}(?!\S)|\s{256}(?!\S)|\s{128}(?!\S)|` +
		`\s{64}(?!\S)|\s{32}(?!\S)|\s{16}(?!\S)|\s{8}(?!\S)|\s{4}(?!\S)|\s{1,2}(?!\S)|\s{1}`

	upper      = `\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}`
	lower      = `\p{Ll}\p{Lm}\p{Lo}\p{M}`
	casedStart = `[^\r\n\p{L}\p{N}]?[` + upper + `]*[` + lower + `]+`
	casedUpper = `[^\r\n\p{L}\p{N}]?[` + upper + `]+[` + lower + `]*`
	pathSigns  = ` ?[^\s\p{L}\p{N}]+[\r\n/]*`
	exprTekken = casedStart + `|` + casedUpper + `|\p{N}|` + pathSigns + `|` + blanks
	exprGPT4o  = casedStart + endingsFold + `?|` + casedUpper + endingsFold + `?|\p{N}{1,3}|` + pathSigns + `|` + blanks
	exprYoutu  = casedStart + endingsCase + `?|` + casedUpper + endingsCase + `?|\p{N}|` + pathSigns + `|` + blanks

	exprGranite97 = `[^\r\n\p{L}\p{N}]?((?=[\p{L}\p{M}])([^a-z]))*((?=[\p{L}\p{M}])([^A-Z]))+` + endingsCase + `?|` +
		`[^\r\n\p{L}\p{N}]?((?=[\p{L}\p{M}])([^a-z]))+((?=[\p{L}\p{M}])([^A-Z]))*` + endingsCase + `?|` +
		`\p{N}{1,3}|` + pathSigns + `|` + blanks

	// Kimi-K2's tokenization_kimi.py; llama.cpp marks it by \p{Han}+ and has code for the whole.
	exprKimi = `[\p{Han}]+|` +
		`[^\r\n\p{L}\p{N}]?[` + upper + `&&[^\p{Han}]]*[` + lower + `&&[^\p{Han}]]+` + endingsFold + `?|` +
		`[^\r\n\p{L}\p{N}]?[` + upper + `&&[^\p{Han}]]+[` + lower + `&&[^\p{Han}]]*` + endingsFold + `?|` +
		`\p{N}{1,3}|` + signs + `|` + blanks

	asciiSign    = `[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_` + "`" + `{|}~]`
	exprDeepSeek = asciiSign + `[A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|` + blanks
	exprSpark    = asciiSign + `[A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+|[\r\n]|\s+(?!\S)|\s+`

	exprBailing   = `'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+`
	exprSeedCoder = endingsFold + `|` + word + `|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|` + blanks
	exprUfakzeka  = word + `|\p{N}|` + signs + `|` + blanks
	exprExaoneMoE = endingsFold + `|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?|` +
		`\s*[\r\n]|\s+(?!\S)|\s+`

	exprLines    = `[^\n]+|[\n]+`
	exprHanKana  = `[\x{4E00}-\x{9FA5}\x{3040}-\x{309F}\x{30A0}-\x{30FF}]+`
	exprHan      = `[\x{4E00}-\x{9FA5}\x{800}-\x{4E00}\x{AC00}-\x{D7FF}]+`
	exprBloom    = ` ?[^(\s|.,!?…。，、।۔،)]+`
	exprScripts  = `[\x{AC00}-\x{D7A3}\x{3131}-\x{318E}]+|[\x{FF01}\x{2026}\x{201C}\x{201D}\x{2018}\x{2019}\x{2014}\x{FF1A}\x{FF1B}\x{FF0C}\x{3001}-\x{303F}\x{FE30}-\x{FE4F}]+|[\x{3105}-\x{312F}]+|[\x{4E00}-\x{9FA5}\x{3040}-\x{309F}\x{30A0}-\x{30FF}]+`
	exprUnspaced = `[\x{4E00}-\x{9FFF}\x{3400}-\x{4DBF}\x{8C48}-\x{FAFF}\x{3040}-\x{309F}\x{30A0}-\x{30FF}\x{FF65}-\x{FF9F}\x{2F00}-\x{2FDF}\x{E40}-\x{E7F}\x{E80}-\x{EFF}\x{1780}-\x{17FF}\x{1000}-\x{109F}\x{AA60}-\x{AA7F}\x{A9E0}-\x{A9FF}\x{AC00}-\x{D7AF}\x{1100}-\x{11FF}]+`

	exprCased = `\s?[A-Za-z\x{B5}À-ÖØ-öø-\x{1BA}\x{1BC}-\x{1BF}\x{1C4}-\x{293}\x{295}-\x{2AF}\x{370}-\x{373}\x{376}\x{377}\x{37B}-\x{37D}\x{37F}\x{386}\x{388}-\x{38A}\x{38C}\x{38E}-\x{3A1}\x{3A3}-\x{3F5}\x{3F7}-\x{481}\x{48A}-\x{52F}\x{531}-\x{556}\x{10A0}-\x{10C5}\x{13A0}-\x{13F5}\x{13F8}-\x{13FD}\x{1C90}-\x{1CBA}\x{1CBD}-\x{1CBF}\x{1D00}-\x{1D2B}\x{1D6B}-\x{1D77}\x{1D79}-\x{1D9A}\x{1E00}-\x{1F15}\x{1F18}-\x{1F1D}\x{1F20}-\x{1F45}\x{1F48}-\x{1F4D}\x{1F50}-\x{1F57}\x{1F59}\x{1F5B}\x{1F5D}\x{1F5F}-\x{1F7D}\x{1F80}-\x{1FB4}\x{1FB6}-\x{1FBC}\x{1FBE}\x{1FC2}-\x{1FC4}\x{1FC6}-\x{1FCC}\x{1FD0}-\x{1FD3}\x{1FD6}-\x{1FDB}\x{1FE0}-\x{1FEC}\x{1FF2}-\x{1FF4}\x{1FF6}-\x{1FFC}\x{2102}\x{2107}\x{210A}-\x{2113}\x{2115}\x{2119}-\x{211D}\x{2124}\x{2126}\x{2128}\x{212A}-\x{212D}\x{212F}-\x{2134}\x{2139}\x{213C}-\x{213F}\x{2145}-\x{2149}\x{214E}\x{2183}\x{2184}\x{2C00}-\x{2C7B}\x{2C7E}-\x{2CE4}\x{2CEB}-\x{2CEE}\x{2CF2}\x{2CF3}\x{A640}-\x{A66D}\x{A680}-\x{A69B}\x{A722}-\x{A76F}\x{A771}-\x{A787}\x{A78B}-\x{A78E}\x{AB70}-\x{ABBF}\x{FB00}-\x{FB06}\x{FB13}-\x{FB17}\x{FF21}-\x{FF3A}\x{FF41}-\x{FF5A}\x{10400}-\x{1044F}\x{104B0}-\x{104D3}\x{104D8}-\x{104FB}\x{10C80}-\x{10CB2}\x{10CC0}-\x{10CF2}\x{118A0}-\x{118DF}\x{1E900}-\x{1E943}]+`
	exprWide  = `\s?[!-/:-~\x{FF01}-\x{FF0F}\x{FF1A}-\x{FF5E}\x{2018}-\x{201F}\x{3000}-\x{3002}]+`
)

// preType is what one or more names of tokenizer.ggml.pre stand for.
type preType struct {
	names        string // separated by spaces; a converted model gets the first
	exprs        []string
	ignoreMerges bool // a piece that is a token is that token
	addBOS       bool // unless the file says otherwise
	noBOS        bool // no BOS unless the file names one
	chars        bool // characters with byte fallback, spaces as U+2581, instead of bytes
}

var preTypes = []preType{
	{names: "default", exprs: []string{`[\p{P}\$\+<=>\^~\|]+`, exprGPT2, `\p{N}+`, `[0-9][0-9][0-9]`}},
	{names: "minicpm5", exprs: []string{`\p{N}{1,3}`, exprMiniCPM5}, ignoreMerges: true},
	{names: "llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano", exprs: []string{exprLlama3},
		ignoreMerges: true, addBOS: true},
	{names: "deepseek-llm", exprs: []string{`[\r\n]`, exprCased, exprWide, `\s+$`, exprHan, `\p{N}+`}},
	{names: "deepseek-coder", exprs: []string{`[\r\n]`, `\s?\p{L}+`, `\s?\p{P}+`, exprHan, `\p{N}`}},
	{names: "deepseek-v3 hunyuan-dense hy_v4 joyai-llm", exprs: []string{`\p{N}{1,3}`, exprHanKana, exprDeepSeek}},
	{names: "spark2_5", exprs: []string{`\p{N}{1,3}`, exprHanKana, exprSpark, `\p{N}`}},
	{names: "youtu", exprs: []string{exprScripts, exprYoutu}, ignoreMerges: true},
	{names: "falcon", exprs: []string{`[\p{P}\$\+<=>\^~\|` + "`]+", exprGPT2, `[0-9][0-9][0-9]`}},
	{names: "gpt-2 mpt phi-2 jina-es jina-de gigachat jina-v2-es jina-v2-de a.x-4.0 mellum modern-bert olmo jais exaone4 trillion " +
		"granite-docling jina-v1-en jina-v2-code roberta-bpe", exprs: []string{exprGPT2}},
	{names: "starcoder refact command-r smollm codeshell exaone minerva-7b mellum2", exprs: []string{`\p{N}`, exprGPT2}},
	{names: "jais-2", exprs: []string{exprJais2}},
	{names: "gemma4 granite-embed-multi-311m sarvam-moe", exprs: []string{exprLines}, chars: true},
	{names: "whitespace", exprs: []string{`\S+`}, chars: true},
	{names: "qwen2 deepseek-r1-qwen kormo f2llmv2 stablelm2 megrez hunyuan grok-2 solar-open", exprs: []string{exprQwen2}},
	{names: "qwen35", exprs: []string{exprQwen35}},
	{names: "dbrx smaug-bpe", exprs: []string{exprDBRX}},
	{names: "chatglm-bpe", exprs: []string{exprDBRX}, noBOS: true},
	{names: "glm4 glm5", exprs: []string{exprDBRX}, noBOS: true, ignoreMerges: true},
	{names: "bloom poro-chat gpt3-finnish", exprs: []string{exprBloom}},
	{names: "viking", exprs: []string{exprBloom, `\p{N}`}},
	{names: "tekken", exprs: []string{exprTekken}, ignoreMerges: true, addBOS: true},
	{names: "exaone-moe", exprs: []string{exprExaoneMoE}},
	{names: "chameleon", exprs: []string{`<sentinel:[0-9]+>`, `(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z`, `([\t\n]|    |  )`, `\p{N}`,
		`[\p{P}!-/:-@\[-` + "`{-~]", exprGPT2}, addBOS: true},
	{names: "gpt-4o llama4 kanana2 talkie minimax-m2", exprs: []string{exprGPT4o}},
	{names: "granite-embed-multi-97m", exprs: []string{exprGranite97}, ignoreMerges: true},
	{names: "tiny_aya cohere2moe", exprs: []string{`\d{1,3}(?=(?:\d{3})*\b)`, exprGPT4o}},
	{names: "superbpe", exprs: []string{`\p{N}+`, `(?=(\d{3})+(?!\d))`}},
	{names: "bailingmoe bailingmoe2 llada-moe", exprs: []string{exprBailing}},
	{names: "seed-coder", exprs: []string{exprSeedCoder}},
	{names: "kimi-k2", exprs: []string{exprKimi}},
	{names: "ufakzeka", exprs: []string{exprUfakzeka}},
	// Digits in groups of three, counted from the right.
	{names: "afmoe", exprs: []string{`\p{N}{1,3}(?=(?:\p{N}{3})*(?!\p{N}))`, exprUnspaced, exprDeepSeek}},
	{names: "laguna", exprs: []string{exprLines, exprLaguna}},
}

// findPreType is the entry for a value of tokenizer.ggml.pre.
func findPreType(name string) (preType, bool) {
	for _, t := range preTypes {
		for n := range strings.FieldsSeq(t.names) {
			if n == name {
				return t, true
			}
		}
	}
	return preType{}, false
}
