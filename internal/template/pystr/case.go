package pystr

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// specialUpper lists the code points whose upper case (and title case, after the slash) has more than one code point,
// from Unicode's SpecialCasing.txt.
const specialUpper = "" +
	" \u00df=SS/Ss \u0149=\u02bcN \u01f0=J\u030c \u0390=\u0399\u0308\u0301 \u03b0=\u03a5\u0308\u0301" +
	" \u0587=\u0535\u0552/\u0535\u0582 \u1e96=H\u0331 \u1e97=T\u0308 \u1e98=W\u030a \u1e99=Y\u030a \u1e9a=A\u02be" +
	" \u1f50=\u03a5\u0313 \u1f52=\u03a5\u0313\u0300 \u1f54=\u03a5\u0313\u0301 \u1f56=\u03a5\u0313\u0342" +
	" \u1f80=\u1f08\u0399/\u1f88 \u1f81=\u1f09\u0399/\u1f89 \u1f82=\u1f0a\u0399/\u1f8a \u1f83=\u1f0b\u0399/\u1f8b" +
	" \u1f84=\u1f0c\u0399/\u1f8c \u1f85=\u1f0d\u0399/\u1f8d \u1f86=\u1f0e\u0399/\u1f8e \u1f87=\u1f0f\u0399/\u1f8f" +
	" \u1f88=\u1f08\u0399/\u1f88 \u1f89=\u1f09\u0399/\u1f89 \u1f8a=\u1f0a\u0399/\u1f8a \u1f8b=\u1f0b\u0399/\u1f8b" +
	" \u1f8c=\u1f0c\u0399/\u1f8c \u1f8d=\u1f0d\u0399/\u1f8d \u1f8e=\u1f0e\u0399/\u1f8e \u1f8f=\u1f0f\u0399/\u1f8f" +
	" \u1f90=\u1f28\u0399/\u1f98 \u1f91=\u1f29\u0399/\u1f99 \u1f92=\u1f2a\u0399/\u1f9a \u1f93=\u1f2b\u0399/\u1f9b" +
	" \u1f94=\u1f2c\u0399/\u1f9c \u1f95=\u1f2d\u0399/\u1f9d \u1f96=\u1f2e\u0399/\u1f9e \u1f97=\u1f2f\u0399/\u1f9f" +
	" \u1f98=\u1f28\u0399/\u1f98 \u1f99=\u1f29\u0399/\u1f99 \u1f9a=\u1f2a\u0399/\u1f9a \u1f9b=\u1f2b\u0399/\u1f9b" +
	" \u1f9c=\u1f2c\u0399/\u1f9c \u1f9d=\u1f2d\u0399/\u1f9d \u1f9e=\u1f2e\u0399/\u1f9e \u1f9f=\u1f2f\u0399/\u1f9f" +
	" \u1fa0=\u1f68\u0399/\u1fa8 \u1fa1=\u1f69\u0399/\u1fa9 \u1fa2=\u1f6a\u0399/\u1faa \u1fa3=\u1f6b\u0399/\u1fab" +
	" \u1fa4=\u1f6c\u0399/\u1fac \u1fa5=\u1f6d\u0399/\u1fad \u1fa6=\u1f6e\u0399/\u1fae \u1fa7=\u1f6f\u0399/\u1faf" +
	" \u1fa8=\u1f68\u0399/\u1fa8 \u1fa9=\u1f69\u0399/\u1fa9 \u1faa=\u1f6a\u0399/\u1faa \u1fab=\u1f6b\u0399/\u1fab" +
	" \u1fac=\u1f6c\u0399/\u1fac \u1fad=\u1f6d\u0399/\u1fad \u1fae=\u1f6e\u0399/\u1fae \u1faf=\u1f6f\u0399/\u1faf" +
	" \u1fb2=\u1fba\u0399/\u1fba\u0345 \u1fb3=\u0391\u0399/\u1fbc \u1fb4=\u0386\u0399/\u0386\u0345 \u1fb6=\u0391\u0342" +
	" \u1fb7=\u0391\u0342\u0399/\u0391\u0342\u0345 \u1fbc=\u0391\u0399/\u1fbc \u1fc2=\u1fca\u0399/\u1fca\u0345" +
	" \u1fc3=\u0397\u0399/\u1fcc \u1fc4=\u0389\u0399/\u0389\u0345 \u1fc6=\u0397\u0342" +
	" \u1fc7=\u0397\u0342\u0399/\u0397\u0342\u0345 \u1fcc=\u0397\u0399/\u1fcc \u1fd2=\u0399\u0308\u0300" +
	" \u1fd3=\u0399\u0308\u0301 \u1fd6=\u0399\u0342 \u1fd7=\u0399\u0308\u0342 \u1fe2=\u03a5\u0308\u0300" +
	" \u1fe3=\u03a5\u0308\u0301 \u1fe4=\u03a1\u0313 \u1fe6=\u03a5\u0342 \u1fe7=\u03a5\u0308\u0342" +
	" \u1ff2=\u1ffa\u0399/\u1ffa\u0345 \u1ff3=\u03a9\u0399/\u1ffc \u1ff4=\u038f\u0399/\u038f\u0345 \u1ff6=\u03a9\u0342" +
	" \u1ff7=\u03a9\u0342\u0399/\u03a9\u0342\u0345 \u1ffc=\u03a9\u0399/\u1ffc \ufb00=FF/Ff \ufb01=FI/Fi \ufb02=FL/Fl" +
	" \ufb03=FFI/Ffi \ufb04=FFL/Ffl \ufb05=ST/St \ufb06=ST/St \ufb13=\u0544\u0546/\u0544\u0576" +
	" \ufb14=\u0544\u0535/\u0544\u0565 \ufb15=\u0544\u053b/\u0544\u056b \ufb16=\u054e\u0546/\u054e\u0576" +
	" \ufb17=\u0544\u053d/\u0544\u056d"

var upperOf, titleOf = func() (map[rune]string, map[rune]string) {
	up, title := map[rune]string{}, map[rune]string{}
	for _, entry := range strings.Fields(specialUpper) {
		from, to, _ := strings.Cut(entry, "=")
		u, t, ok := strings.Cut(to, "/")
		if !ok {
			t = u
		}
		c, _ := utf8.DecodeRuneInString(from)
		up[c], title[c] = u, t
	}
	return up, title
}()

// Upper is str.upper.
func Upper(s string) string {
	var b strings.Builder
	for _, c := range s {
		if u, ok := upperOf[c]; ok && c > 0x7f {
			b.WriteString(u)
		} else {
			b.WriteRune(unicode.ToUpper(c))
		}
	}
	return b.String()
}

func titleRune(c rune) string {
	if t, ok := titleOf[c]; ok {
		return t
	}
	return string(unicode.ToTitle(c))
}

func isCased(c rune) bool {
	return unicode.IsUpper(c) || unicode.IsLower(c) || unicode.IsTitle(c) || unicode.Is(unicode.Other_Lowercase, c) ||
		unicode.Is(unicode.Other_Uppercase, c)
}

// Lower is str.lower: Σ at the end of a word becomes ς.
func Lower(s string) string {
	var b strings.Builder
	for i, c := range s {
		switch c {
		case 'İ':
			b.WriteString("i̇")
		case 'Σ':
			if finalSigma(s, i) {
				b.WriteRune('ς')
			} else {
				b.WriteRune('σ')
			}
		default:
			b.WriteRune(unicode.ToLower(c))
		}
	}
	return b.String()
}

// finalSigma: a cased letter before i and none after it, marks and such apart (Unicode, 3.13). It looks at no more
// than 64 code points on either side.
func finalSigma(s string, i int) bool {
	ignorable := func(c rune) bool {
		switch c {
		case '\'', '.', ':', '^', '`', '·', '’':
			return true
		}
		return c > 0x7f && unicode.In(c, unicode.Mn, unicode.Me, unicode.Cf, unicode.Lm, unicode.Sk)
	}
	cased := func(rest string, step func(string) (rune, int), cut func(string, int) string) bool {
		for range 64 {
			c, n := step(rest)
			if n == 0 || !ignorable(c) {
				return n > 0 && isCased(c)
			}
			rest = cut(rest, n)
		}
		return false
	}
	return cased(s[:i], utf8.DecodeLastRuneInString, func(s string, n int) string { return s[:len(s)-n] }) &&
		!cased(s[i+len("Σ"):], utf8.DecodeRuneInString, func(s string, n int) string { return s[n:] })
}

// Capitalize is str.capitalize.
func Capitalize(s string) string {
	if s == "" {
		return s
	}
	n := RuneLen(s)
	c, _ := utf8.DecodeRuneInString(s)
	return titleRune(c) + Lower(s)[len(Lower(s[:n])):]
}

// Title is str.title: the first cased letter of each run of cased letters in title case, the others lower.
func Title(s string) string {
	var b strings.Builder
	low := Lower(s)
	inWord := false
	for i, c := range s {
		n := len(Lower(s[i : i+RuneLen(s[i:])]))
		if inWord {
			b.WriteString(low[:n])
		} else {
			b.WriteString(titleRune(c))
		}
		low = low[n:]
		inWord = isCased(c)
	}
	return b.String()
}

// Swapcase is str.swapcase.
func Swapcase(s string) string {
	var b strings.Builder
	low := Lower(s)
	for i, c := range s {
		n := len(Lower(s[i : i+RuneLen(s[i:])]))
		if unicode.IsUpper(c) {
			b.WriteString(low[:n])
		} else {
			b.WriteString(Upper(s[i : i+RuneLen(s[i:])]))
		}
		low = low[n:]
	}
	return b.String()
}

// IsCase is islower (up false) or isupper: a cased letter, and none of the other case.
func IsCase(s string, up bool) bool {
	found := false
	for _, c := range s {
		lo := unicode.IsLower(c) || unicode.Is(unicode.Other_Lowercase, c)
		hi := unicode.IsUpper(c) || unicode.Is(unicode.Other_Uppercase, c)
		if unicode.IsTitle(c) || up && lo || !up && hi {
			return false
		}
		found = found || lo || hi
	}
	return found
}

// IsTitle is str.istitle.
func IsTitle(s string) bool {
	found, inWord := false, false
	for _, c := range s {
		up := unicode.IsUpper(c) || unicode.IsTitle(c)
		if up && inWord || !up && isCased(c) && !inWord {
			return false
		}
		inWord = isCased(c)
		found = found || inWord
	}
	return found
}

// TitleWords is the filter title: the first code point of each word upper, the others lower; words end at white space
// and any of -({[<.
func TitleWords(s string) string {
	var b strings.Builder
	isSep := func(c rune) bool { return IsSpace(c) || strings.ContainsRune("-({[<", c) }
	for s != "" {
		i := strings.IndexFunc(s, isSep)
		if i < 0 {
			i = len(s)
		}
		if i > 0 {
			n := RuneLen(s)
			b.WriteString(Upper(s[:n]))
			b.WriteString(Lower(s[n:i]))
			s = s[i:]
		}
		j := strings.IndexFunc(s, func(c rune) bool { return !isSep(c) })
		if j < 0 {
			j = len(s)
		}
		b.WriteString(s[:j])
		s = s[j:]
	}
	return b.String()
}
