package words

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// fold makes writing that differs in form only the same: case, full width,
// katakana as hiragana, traditional characters as simplified ones. It maps one rune to one, so that offsets survive.
func fold(r rune) rune {
	switch {
	case r >= 0xff01 && r <= 0xff5e:
		r -= 0xfee0
	case r >= 'ァ' && r <= 'ヶ':
		return r - 0x60
	case r == '’' || r == '‘':
		return '\''
	case r == '\u3000':
		return ' '
	}
	if simple, ok := simplified[r]; ok {
		return simple
	}
	return unicode.ToLower(r)
}

// variants are pairs of a traditional (or Japanese) character and the simplified
// one that stands for it in the index, for the characters of common things.
const variants = `貓猫鳥鸟魚鱼馬马龍龙龜龟亀龟車车飛飞機机雞鸡鶏鸡鴨鸭鵝鹅豬猪獅狮蟲虫蝦虾貝贝樹树葉叶雲云風风電电氷冰島岛門门鑰钥寶宝錢钱劍剑剣剑書书燈灯氣气気气頭头體体國国園园學学場场塊块陽阳極极熱热潛潜艦舰戰战戦战騎骑隊队獸兽獣兽鯨鲸鯊鲨鳳凤鷹鹰鴿鸽蝸蜗蟻蚁螞蚂蘋苹蘿萝麵面麥麦餅饼個个隻只條条輛辆紅红綠绿緑绿藍蓝黃黄銀银圓圆遊游戲戏裡里從从來来過过們们這这進进開开關关擊击尋寻賽赛競竞險险殭僵靈灵飼饲貨货輪轮礦矿鑽钻蟬蝉蠍蝎鱷鳄鸚鹦鵡鹉蘆芦筍笋薑姜醬酱飯饭湯汤藥药膠胶線线網网絲丝鞋鞋襪袜褲裤裝装衛卫導导彈弹槍枪盜盗賊贼長长腦脑臉脸髮发鬍胡`

var simplified = func() map[rune]rune {
	m := map[rune]rune{}
	runes := []rune(variants)
	for i := 0; i+1 < len(runes); i += 2 {
		m[runes[i]] = runes[i+1]
	}
	return m
}()

// Fold makes writing that differs in form only the same: case, katakana and
// hiragana, traditional and simplified characters. The result has the length of
// s, so that offsets hold in both; what would change the length stays.
func Fold(s string) string {
	var b strings.Builder
	b.Grow(len(s))
	for i, r := range s {
		_, n := utf8.DecodeRuneInString(s[i:])
		f := fold(r)
		if utf8.RuneLen(f) != n {
			b.WriteString(s[i : i+n])
			continue
		}
		b.WriteRune(f)
	}
	return b.String()
}

// isWord reports whether r belongs to a word that is written with spaces.
func isWord(r rune) bool {
	return r < 0x2e80 && (unicode.IsLetter(r) || unicode.IsDigit(r)) || r == '\''
}

func isHan(r rune) bool { return unicode.Is(unicode.Han, r) || r == '々' }

func isHiragana(r rune) bool { return r >= 'ぁ' && r <= 'ゖ' }

func isKatakana(r rune) bool { return r >= 'ァ' && r <= 'ヶ' || r == 'ー' }

func isCJK(r rune) bool { return isHan(r) || isHiragana(r) || isKatakana(r) }

// key is the form under which a term stands in the index: folded, with single
// spaces between words and none between other characters.
func key(term string) string {
	var b strings.Builder
	gap := false
	last := rune(0)
	for _, r := range term {
		f := fold(r)
		if !isWord(f) && !isCJK(f) && !isCJK(r) {
			gap = true
			continue
		}
		if gap && b.Len() > 0 && isWord(f) && isWord(last) {
			b.WriteByte(' ')
		}
		gap = false
		b.WriteRune(f)
		last = f
	}
	return b.String()
}

// singular returns the forms that w may be the plural of, w first.
func singular(w string) []string {
	w = strings.TrimSuffix(strings.TrimSuffix(w, "'s"), "'")
	out := []string{w}
	add := func(suffix, instead string) {
		if s, ok := strings.CutSuffix(w, suffix); ok && len(s) > 1 && !strings.HasSuffix(w, "ss") {
			out = append(out, s+instead)
		}
	}
	add("ies", "y")
	add("ves", "f")
	add("ves", "fe")
	add("es", "")
	add("s", "")
	return out
}

// stems returns the verbs or nouns that w may be a form of.
func stems(w string) []string {
	var out []string
	for _, suffix := range []string{"ing", "ed", "er", "y"} {
		s, ok := strings.CutSuffix(w, suffix)
		if !ok || len(s) < 3 {
			continue
		}
		out = append(out, s, s+"e")
		if n := len(s); s[n-1] == s[n-2] {
			out = append(out, s[:n-1])
		}
	}
	return out
}
