package app

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/user"
	"strconv"

	"dreamcore"
	"dreamcore/internal/config"
	"dreamcore/internal/keyproxy/control"
	"dreamcore/internal/text"
)

// Whom the key proxy runs as when the settings do not say: the account of this
// name where there is one, else the number, which needs no account. It is below
// what systemd and container tools hand out, and above what people get.
const (
	proxyAccount = "dreamcore-proxy"
	proxyID      = 59417
)

// proxyUser is whom the key proxy runs as; nil: as we do.
func proxyUser(cfg config.Config, log *slog.Logger) (*control.User, error) {
	set, fail := cfg.Proxy.User, func(key string, args ...string) (*control.User, error) {
		return nil, text.Error(cfg.Lang, dreamcore.Invalid, "keyproxy", "keyproxy."+key, args...)
	}
	root := os.Geteuid() == 0
	switch {
	case set == config.SameUser:
		log.Warn("the key proxy shares our user", "decision", "share", "reason", "settings")
		return nil, nil
	case !root && set != "":
		return fail("needs_root", "user", printable(set, 40))
	case !root:
		log.Warn("the key proxy shares our user", "decision", "share", "reason", "not_root")
		return nil, nil
	}
	name := set
	if name == "" {
		name = proxyAccount
	}
	u, err := accountOf(name)
	switch {
	case err == nil:
	case set != "":
		return fail("no_user", "user", printable(set, 40))
	default:
		if other, err := user.LookupId(strconv.Itoa(proxyID)); err == nil {
			return fail("taken_id", "uid", strconv.Itoa(proxyID), "user", printable(other.Username, 40))
		}
		u = control.User{UID: proxyID, GID: proxyID}
	}
	if u.UID <= 0 || u.GID <= 0 || u.UID == nobody || u.UID == boxUser {
		return fail("bad_user", "user", printable(name, 40))
	}
	log.Info("key proxy user", "decision", "its own", "uid", u.UID, "gid", u.GID)
	return &u, nil
}

// Users that are others' already.
const (
	nobody  = 65534
	boxUser = 1000 // of the agent in a sandbox
)

// accountOf finds an account by name, or takes a number for itself.
func accountOf(name string) (control.User, error) {
	if n, err := strconv.Atoi(name); err == nil {
		u, err := user.LookupId(name)
		if err != nil {
			return control.User{UID: n, GID: n}, nil
		}
		return numbers(u)
	}
	u, err := user.Lookup(name)
	if err != nil {
		return control.User{}, err
	}
	return numbers(u)
}

func numbers(u *user.User) (control.User, error) {
	uid, uerr := strconv.Atoi(u.Uid)
	gid, gerr := strconv.Atoi(u.Gid)
	if err := errors.Join(uerr, gerr); err != nil {
		return control.User{}, fmt.Errorf("the account %s: %w", u.Username, err)
	}
	return control.User{UID: uid, GID: gid}, nil
}
