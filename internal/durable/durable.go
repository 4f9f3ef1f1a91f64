// Package durable runs jobs as DBOS workflows: each step is checkpointed, a job
// that was interrupted goes on at the next start, and at most so many run at
// once. It is the adapter between job.Steps and DBOS; nothing else knows DBOS.
package durable

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/dbos-inc/dbos-transact-golang/dbos"
	_ "github.com/dbos-inc/dbos-transact-golang/dbos/driver/sqlite" // SQLite as DBOS's system database

	"dreamcore"
	"dreamcore/internal/job"
)

const (
	queueName = "jobs"
	// The version and the executor are constants: DBOS recovers only what has
	// the same ones, and an upgrade must not strand jobs.
	appVersion = "1"
	executor   = "local"
	// DBOS polls its queue; its default of a second is a second that a child waits.
	pollEvery = 100 * time.Millisecond
)

// Config is what an Executor needs.
type Config struct {
	Dir        string // where the workflow database lives
	Concurrent int    // jobs at once
	Run        func(ctx context.Context, steps job.Steps, id dreamcore.JobID) error
	Log        *slog.Logger
}

// Executor runs jobs durably.
type Executor struct {
	cfg   Config
	dbos  dbos.Context
	queue dbos.Queue
}

// New returns an Executor that has not started.
func New(cfg Config) *Executor { return &Executor{cfg: cfg} }

// Start opens the workflow database and goes on with what was interrupted. Jobs
// run until Stop: ctx bounds the start alone.
func (e *Executor) Start(ctx context.Context) error {
	d, err := dbos.NewContext(context.WithoutCancel(ctx), dbos.Config{
		AppName:            "dreamcore",
		DatabaseURL:        "sqlite:" + filepath.Join(e.cfg.Dir, "workflows.db"),
		ApplicationVersion: appVersion,
		ExecutorID:         executor,
		Logger:             e.cfg.Log.With("component", "dbos"),
	})
	if err != nil {
		return fmt.Errorf("open the workflow database: %w", err)
	}
	dbos.RegisterWorkflow(d, e.workflow, dbos.WithWorkflowName("job"))
	if err := dbos.Launch(d); err != nil {
		_ = dbos.Shutdown(d, 10*time.Second) // the launch's error says more
		return fmt.Errorf("start the workflows: %w", err)
	}
	e.dbos = d
	e.queue, err = dbos.RegisterQueue(d, queueName,
		dbos.WithWorkerConcurrency(e.cfg.Concurrent), dbos.WithQueueBasePollingInterval(pollEvery))
	if err != nil {
		e.Stop()
		return fmt.Errorf("open the queue: %w", err)
	}
	return nil
}

// Enqueue makes the job durable. The same job twice is one; code Conflict for
// one whose steps had ended before.
func (e *Executor) Enqueue(_ context.Context, id dreamcore.JobID) error {
	// DBOS takes a workflow that has ended for one that was asked for again. It
	// is asked before, not after: a short job may have ended by then.
	if h, err := dbos.RetrieveWorkflow[string](e.dbos, string(id)); err == nil {
		status, err := h.GetStatus()
		if err != nil {
			return fmt.Errorf("look at job %s: %w", id, err)
		}
		switch status.Status {
		case dbos.WorkflowStatusSuccess, dbos.WorkflowStatusError, dbos.WorkflowStatusCancelled, dbos.WorkflowStatusMaxRecoveryAttemptsExceeded:
			return dreamcore.Errorf(dreamcore.Conflict, "durable.enqueue", "the steps of job %s have ended as %s", id, status.Status)
		}
	} else if !errors.Is(err, dbos.ErrNonExistentWorkflow) {
		return fmt.Errorf("look for job %s: %w", id, err)
	}
	if _, err := dbos.RunWorkflow(e.dbos, e.workflow, string(id), dbos.WithWorkflowID(string(id)), dbos.WithQueue(e.queue)); err != nil {
		return fmt.Errorf("queue job %s: %w", id, err)
	}
	return nil
}

// Stop interrupts what runs and waits until each job has destroyed its sandbox.
// Interrupted jobs go on at the next start. Stopping twice is harmless.
func (e *Executor) Stop() {
	if e.dbos == nil {
		return
	}
	if err := dbos.Shutdown(e.dbos, 90*time.Second); err != nil {
		e.cfg.Log.Warn("not everything stopped in time", "err", err)
	}
}

func (e *Executor) workflow(ctx dbos.Context, id string) (string, error) {
	return id, e.cfg.Run(ctx, steps{ctx}, dreamcore.JobID(id))
}

// steps is job.Steps on one workflow.
type steps struct{ ctx dbos.Context }

func (s steps) Do(_ context.Context, name string, f func() ([]byte, error)) ([]byte, error) {
	return dbos.RunAsStep(s.ctx, func(context.Context) ([]byte, error) { return f() }, dbos.WithStepName(name))
}
