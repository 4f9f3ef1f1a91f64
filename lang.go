package dreamcore

import (
	"strconv"
	"strings"
)

// Lang is a language in which people and agents are spoken to.
type Lang string

// The three languages of every text that a user sees.
const (
	English  Lang = "en"
	Japanese Lang = "ja"
	Chinese  Lang = "zh"
)

// Langs lists the languages in the order in which pages offer them.
var Langs = []Lang{English, Japanese, Chinese}

// Localized is one text in every language.
type Localized map[Lang]string

// In returns the text in lang, or in English where that one is missing.
func (l Localized) In(lang Lang) string {
	if s := l[lang]; s != "" {
		return s
	}
	return l[English]
}

// DetectLang guesses the language of a person's text by its script: any kana
// means Japanese, Han without kana means Chinese, everything else English.
func DetectLang(text string) Lang {
	han := false
	for _, r := range text {
		switch {
		case r >= 0x3040 && r <= 0x30ff, r >= 0x31f0 && r <= 0x31ff, r >= 0xff66 && r <= 0xff9f:
			return Japanese
		case r >= 0x4e00 && r <= 0x9fff, r >= 0x3400 && r <= 0x4dbf:
			han = true
		}
	}
	if han {
		return Chinese
	}
	return English
}

// ParseLang returns the language that a tag such as "ja", "zh-CN" or "en_GB"
// asks for; ok is false for one that we do not speak.
func ParseLang(tag string) (lang Lang, ok bool) {
	primary := strings.ToLower(tag)
	if i := strings.IndexAny(primary, "-_"); i >= 0 {
		primary = primary[:i]
	}
	for _, l := range Langs {
		if string(l) == primary {
			return l, true
		}
	}
	return "", false
}

// AcceptLang picks our language that an Accept-Language header likes best,
// English when it names none of ours.
func AcceptLang(header string) Lang {
	best, bestQ := English, 0.0
	for i, part := range strings.Split(header, ",") {
		if i == 20 {
			break // nobody speaks more; a hostile header is long
		}
		tag, params, _ := strings.Cut(part, ";")
		q := 1.0
		if v, found := strings.CutPrefix(strings.TrimSpace(params), "q="); found {
			f, err := strconv.ParseFloat(v, 64)
			if err != nil || !(f >= 0 && f <= 1) {
				continue
			}
			q = f
		}
		if l, ok := ParseLang(strings.TrimSpace(tag)); ok && q > bestQ {
			best, bestQ = l, q
		}
	}
	return best
}
