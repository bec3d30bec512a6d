/* A gate over several batches: closed by the first that starts, opened by the last that is done, held by callers.

   Starting and finishing lock the gate's row until they commit. A caller that checks the gate in its own transaction
   holds it, together with other callers, until it commits. What batches do between is in batch.pml. Broken variants are
   chosen by -D; see README.md.
*/

#define BATCHES 3
#define CALLERS 2

mtype = { NEW, UNFINISHED, FINISHED };

/* The database */
mtype batch[BATCHES] = NEW;
bool gate_open = true;
bool gate_locked;               /* for a change */
byte held;                      /* by so many callers: nobody may change it */

/* What only the checker knows */
byte closings, openings;
bool acted_behind_a_closed_gate;

#define all_finished (batch[0] != UNFINISHED && batch[1] != UNFINISHED && batch[2] != UNFINISHED)

#define honest (!gate_open || all_finished)
#define opened_once (openings <= closings && closings <= openings + 1)

ltl gate_is_honest { [] honest }
ltl gate_opens_once { [] opened_once }
ltl callers_find_it_open { [] !acted_behind_a_closed_gate }
ltl safe { [] (honest && opened_once && !acted_behind_a_closed_gate) }
ltl ends { <> [] (gate_open && all_finished && openings > 0) }

#define may_lock_gate (!gate_locked && held == 0)

inline close_gate() {
    gate_open = false;
    closings++
}

inline open_gate() {
    gate_open = true;
    openings++
}

inline start_batch() {
#ifdef START_WITHOUT_LOCK
    found_open = gate_open;
    d_step {
        batch[me] = UNFINISHED;
        if
        :: found_open -> close_gate()
        :: else
        fi
    }
#else
    d_step { may_lock_gate -> gate_locked = true };
    d_step {
        batch[me] = UNFINISHED;
        if
        :: gate_open -> close_gate()
        :: else
        fi;
        gate_locked = false
    }
#endif
}

/* Whether others are unfinished is asked in a statement before the commit, which sees what is committed by then. */
#define others_finished \
    ((me == 0 || batch[0] != UNFINISHED) && (me == 1 || batch[1] != UNFINISHED) && (me == 2 || batch[2] != UNFINISHED))

inline finish_batch() {
#if defined(OPEN_AFTER_COMMIT)
    batch[me] = FINISHED;
    d_step {
        if
        :: all_finished -> open_gate()
        :: else
        fi
    }
#else
#ifdef FINISH_WITHOUT_LOCK
    is_last = others_finished;
#else
    d_step { may_lock_gate -> gate_locked = true; is_last = others_finished };
#endif
    d_step {
        batch[me] = FINISHED;
        if
        :: is_last -> open_gate()
        :: else
        fi;
        is_last = false;
        gate_locked = false
    }
#endif
}

active [BATCHES] proctype Batch() {
    byte me = _pid;
    bool found_open, is_last;
    start_batch();
    finish_batch()
}

/* Checks the gate, and does what it does only behind an open one. Twice, so that it can come early and late. */
active [CALLERS] proctype Caller() {
    bool found_open;
    byte turns;
    do
    :: turns < 2 ->
#ifdef CHECK_WITHOUT_LOCK
        found_open = gate_open;
#else
        d_step { !gate_locked -> held++; found_open = gate_open };
#endif
        d_step {
            acted_behind_a_closed_gate = acted_behind_a_closed_gate || (found_open && !all_finished);
#ifndef CHECK_WITHOUT_LOCK
            held--;
#endif
            found_open = false;
            turns++
        }
    :: turns == 2 -> break
    od
}
