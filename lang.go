package dreamcore

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
