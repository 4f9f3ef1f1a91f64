package engine

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"dreamcore/internal/envd"
)

const (
	maxHTTPSPorts = 64
	portVariable  = "${PORT}" // in a mask, where the port is to stand
	allTraffic    = "0.0.0.0/0"
)

// face is how requests from outside are shown to the programs of a box.
type face struct {
	Mask  string `json:"mask,omitempty"`  // the Host that they see; "": the one that was asked for
	HTTPS []int  `json:"https,omitempty"` // ports that speak TLS themselves
}

var hostForm = regexp.MustCompile(`^[A-Za-z0-9._\-\[\]:]{1,255}$`)

// face reads what a create request says about ports. It is untrusted.
func (n networkBody) face() (face, error) {
	f := face{HTTPS: n.HTTPSPorts}
	if n.MaskRequestHost != nil {
		f.Mask = *n.MaskRequestHost
	}
	if f.Mask != "" && !hostForm.MatchString(f.host(65535, "")) {
		return face{}, fmt.Errorf("maskRequestHost must be the name of a host, with %s where the port belongs", portVariable)
	}
	if len(f.HTTPS) > maxHTTPSPorts {
		return face{}, fmt.Errorf("httpsPorts may name %d ports", maxHTTPSPorts)
	}
	for _, p := range f.HTTPS {
		if p < 1 || p > 65535 || p == envd.Port {
			return face{}, errors.New("httpsPorts must be ports of the sandbox's own programs")
		}
	}
	return f, nil
}

// host is what the program behind port sees as the host that was asked for.
func (f face) host(port int, asked string) string {
	if f.Mask == "" {
		return asked
	}
	return strings.ReplaceAll(f.Mask, portVariable, strconv.Itoa(port))
}

// scheme is what the program behind port speaks.
func (f face) scheme(port int) string {
	if slices.Contains(f.HTTPS, port) {
		return "https"
	}
	return "http"
}

// networkInfo tells what a box may reach and who may reach it, as it is and not
// as somebody once asked for it.
type networkInfo struct {
	AllowOut           []string `json:"allowOut"`
	DenyOut            []string `json:"denyOut"`
	AllowPublicTraffic bool     `json:"allowPublicTraffic"`
	MaskRequestHost    string   `json:"maskRequestHost,omitempty"`
	HTTPSPorts         []int    `json:"httpsPorts,omitempty"`
}

func (o order) network() *networkInfo {
	n := &networkInfo{AllowOut: []string{}, DenyOut: []string{allTraffic}, AllowPublicTraffic: !o.private, MaskRequestHost: o.face.Mask, HTTPSPorts: o.face.HTTPS}
	if o.egress {
		n.AllowOut = append(n.AllowOut, RelayCIDR)
	}
	return n
}

// domain is Config.Domain as the protocol has it: absent when there is none.
func (e *Engine) domain() *string {
	if e.cfg.Domain == "" {
		return nil
	}
	return &e.cfg.Domain
}
