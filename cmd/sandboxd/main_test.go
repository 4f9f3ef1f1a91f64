package main

import (
	"errors"
	"net"
	"testing"
	"testing/synctest"
	"time"
)

// A box that was saved while it waited for its host goes on a day later, by the
// clock. It waits as long as it always does then, and ends when its host has
// gone for good.
func TestABoxThatWasSavedWaitsForItsHost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dials, served := 0, 0
		var lost time.Time
		attend(func() (net.Conn, error) {
			dials++
			if dials == 1 || dials == 5 { // the first host, and the one that restored it
				return nil, nil
			}
			return nil, errors.New("there is no host")
		}, func(net.Conn) {
			served++
			lost = time.Now()
		}, func(d time.Duration) {
			if dials == 3 { // it is saved here
				time.Sleep(24 * time.Hour)
			}
			time.Sleep(d)
		})
		if served != 2 {
			t.Fatal("the box ended before its new host had called")
		}
		if took := time.Since(lost); took < hostPatience || took > hostPatience+time.Second {
			t.Errorf("without a host it waited %s", took)
		}
	})
}
