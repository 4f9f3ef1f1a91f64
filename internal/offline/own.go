package offline

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
)

// own ends a turn in which no template was delivered.
func (j *job) own() (string, error) {
	return j.say("own.none"), nil
}

// keys are the keys of m, sorted: what is said must follow from the request.
func keys[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }

func count[T any](list []T) string { return strconv.Itoa(len(list)) }
