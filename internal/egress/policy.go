// Package egress says what a sandbox may reach. Each feature has one declaration;
// PolicyOf derives a policy from the enabled ones and from nothing else. Guard
// keeps the key proxy's own dials to the pinned upstreams on the public internet.
package egress

import (
	"slices"

	"dreamcore"
)

// Features lists every feature, sorted.
func Features() []dreamcore.Feature {
	var fs []dreamcore.Feature
	for _, d := range declarations {
		fs = append(fs, d.Feature)
	}
	slices.Sort(fs)
	return fs
}

// PolicyOf returns the policy of a set of features: exactly the rows of each,
// sorted, none twice. A feature that nobody declared adds nothing.
func PolicyOf(features []dreamcore.Feature) dreamcore.Policy {
	var rows []string
	for _, d := range Declarations(features) {
		for _, r := range d.Routes {
			rows = append(rows, r.String())
		}
	}
	slices.Sort(rows)
	return dreamcore.Policy{Routes: slices.Compact(rows)}
}

// Opens returns the features that open a route, sorted.
func Opens(route string) []dreamcore.Feature {
	var fs []dreamcore.Feature
	for _, d := range declarations {
		if slices.ContainsFunc(d.Routes, func(r Route) bool { return r.String() == route }) {
			fs = append(fs, d.Feature)
		}
	}
	slices.Sort(fs)
	return fs
}
