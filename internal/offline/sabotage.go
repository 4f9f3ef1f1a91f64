package offline

import (
	"errors"
	"regexp"
	"slices"
)

// Sabotage is a way in which the agent misbehaves on purpose, so that tests see
// what the rest of the system makes of it.
type Sabotage string

// The ways. All but SabotageHang act through the agent's own tools.
const (
	SabotageNone   Sabotage = ""
	SabotageBreak  Sabotage = "break"  // a syntax error in the build turn, mended in the repair turn
	SabotageDeaf   Sabotage = "deaf"   // the game takes no input, mended in the repair turn
	SabotageRuin   Sabotage = "ruin"   // a syntax error that no repair turn mends
	SabotageHang   Sabotage = "hang"   // the model never answers in the build turn
	SabotageSleep  Sabotage = "sleep"  // a command never ends in the build turn
	SabotageCrash  Sabotage = "crash"  // the agent's own process is killed in the build turn
	SabotageFill   Sabotage = "fill"   // the box's disk is filled in the build turn
	SabotageVanish Sabotage = "vanish" // the build turn ends well, without a game
)

var sabotages = []Sabotage{
	SabotageNone, SabotageBreak, SabotageDeaf, SabotageRuin, SabotageHang,
	SabotageSleep, SabotageCrash, SabotageFill, SabotageVanish,
}

func (s Sabotage) known() bool { return slices.Contains(sabotages, s) }

// errSilent means that the request is never answered.
var errSilent = errors.New("the model keeps silent")

var marker = regexp.MustCompile(`\[sabotage: ([a-z]+)\]`)

// sabotage is the mode of a turn: the configured one, or where markers are
// allowed the one that the wish names.
func (m *Model) sabotage(wish string) Sabotage {
	if m.config.AllowMarkers {
		if found := marker.FindStringSubmatch(wish); found != nil && Sabotage(found[1]).known() {
			return Sabotage(found[1])
		}
	}
	return m.config.Sabotage
}
