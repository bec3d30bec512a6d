/* One batch: jobs are leased and fenced, their ends recorded as moves, moves folded into counts, and it is done once.

   A `d_step` is the commit of a transaction: all of it happens at one moment. What a transaction reads before its
   commit stands in a step of its own, so that others can commit in between. A row lock is a variable that others wait
   for.

   Faults and choices of people are budgets: each may happen at any moment until its budget is used up. A worker that
   stands still is one that is not scheduled; its lease may end meanwhile. Broken variants are chosen by -D; see
   README.md.
*/

#define ITEMS 2
#define WORKERS 2

#ifndef PAUSES
#define PAUSES 1                /* leases that end though their worker lives */
#endif
#ifndef DEATHS
#define DEATHS 1                /* workers that die, with a lease or before they fold */
#endif
#ifndef LOST_REPLIES
#define LOST_REPLIES 1          /* commits of settlements whose reply is lost */
#endif
#ifndef FAILURES
#define FAILURES 1              /* attempts that end their item as failed */
#endif
#ifndef RETRIES
#define RETRIES 1               /* failed items that an operator makes active again */
#endif
#ifndef CANCELS
#define CANCELS 1               /* cancellations of the batch */
#endif

mtype = { ABSENT, QUEUED, RUNNING, COMPLETED, FAILED, WAIVED, CANCELLED };   /* an item */
mtype = { OPEN, SEALED, DONE };                                              /* the batch */

/* What is counted. Claims and rescues stay within a class and are no moves. */
#define live 0                  /* the product says `active`, a word that Promela keeps for itself */
#define completed 1
#define failed 2
#define excused 3               /* waived or cancelled */

/* The database */
mtype item[ITEMS] = ABSENT;
byte attempt[ITEMS];            /* only grows: the fence */
mtype batch = OPEN;
bool hold;                      /* policy: failed items keep the batch from being done */
bool batch_locked;
short counted[4];               /* the stored counts */
short moved[4];                 /* the sum of the moves that are not folded */
byte fired;                     /* completion jobs enqueued */

/* Budgets */
byte pauses = PAUSES;
byte deaths = DEATHS;
byte lost_replies = LOST_REPLIES;
byte failures = FAILURES;
byte retries = RETRIES;
byte cancels = CANCELS;

/* What only the checker knows */
bool orphaned[ITEMS];           /* its worker is dead: the lease will end */
bool was_cancelled;
byte settled[ITEMS];            /* the last attempt whose settlement was accepted */
byte completions[ITEMS];
bool accepted_a_stale_one, accepted_one_twice, fired_early;

#define is_live(i) (item[i] == QUEUED || item[i] == RUNNING)
#define is_missing(i) (item[i] == ABSENT && !was_cancelled)
#define is_excused(i) (item[i] == WAIVED || item[i] == CANCELLED)
/* Moves that cancel each other out pass for none, so there is less folding here than in the product. */
#define there_are_moves (moved[live] != 0 || moved[completed] != 0 || moved[failed] != 0 || moved[excused] != 0)
#define agrees(class, rows) (counted[class] + moved[class] == (rows))

/* Properties */
#define settled_once (!accepted_a_stale_one && !accepted_one_twice)
#define completed_once (completions[0] <= 1 && completions[1] <= 1)
#define counts_exact \
    (agrees(live, is_live(0) + is_live(1)) && \
     agrees(completed, (item[0] == COMPLETED) + (item[1] == COMPLETED)) && \
     agrees(failed, (item[0] == FAILED) + (item[1] == FAILED)) && \
     agrees(excused, is_excused(0) + is_excused(1)))
#define fired_once (fired <= 1)

ltl attempts_settle_once { [] settled_once }
ltl items_complete_once { [] completed_once }
ltl counts_are_exact { [] counts_exact }
ltl completion_fires_once { [] fired_once }
ltl completion_is_last { [] !fired_early }
ltl safe { [] (settled_once && completed_once && counts_exact && fired_once && !fired_early) }
ltl ends { <> [] (batch == DONE && fired == 1 && !there_are_moves && !is_live(0) && !is_live(1)) }

/* Not true, and must be found so: otherwise the model does not go where its properties matter. */
ltl never_held { [] !(batch == SEALED && hold && counted[live] == 0 && counted[failed] > 0) }
ltl never_rescued { [] !(settled[0] == 2 && retries == RETRIES && fired == 1) }
ltl never_retried_when_done { [] !(batch == DONE && (is_live(0) || is_live(1))) }
ltl never_cancelled_midway { [] !(was_cancelled && item[0] == COMPLETED && item[1] == CANCELLED && fired == 1) }

inline move(was, became) {
    moved[was]--;
    moved[became]++
}

/* ---- folding */

inline finish() {
    batch = DONE;
    fired++;
    fired_early = fired_early || is_live(0) || is_live(1) || is_missing(0) || is_missing(1)
}

#ifdef DONE_WITHOUT_SEAL
#define may_finish (batch != DONE)
#else
#define may_finish (batch == SEALED)
#endif
#define is_due (may_finish && counted[live] == 0 && (!hold || counted[failed] == 0))

inline look_at_moves() {
    seen[live] = moved[live];
    seen[completed] = moved[completed];
    seen[failed] = moved[failed];
    seen[excused] = moved[excused]
}

inline add_to_counts(class) {
    counted[class] = counted[class] + seen[class];
    moved[class] = moved[class] - seen[class];
    seen[class] = 0
}

inline add_all_to_counts() {
    add_to_counts(live);
    add_to_counts(completed);
    add_to_counts(failed);
    add_to_counts(excused)
}

inline add_all_to_counts_and_unlock() {
    add_all_to_counts();
    if
    :: is_due -> finish()
    :: else
    fi;
    batch_locked = false
}

/* Lock, then look: moves that commit after the look wait for the next who folds. */
#if defined(FOLD_WITHOUT_LOCK)
/* One statement deletes moves and adds them up, so the counts stay right; but two can find that it is time. */
inline fold() {
    d_step { there_are_moves -> look_at_moves(); add_all_to_counts(); due = is_due };
    d_step {
        if
        :: due -> finish(); due = false
        :: else
        fi
    }
}
#elif defined(LOOK_BEFORE_LOCK)
/* As if lock and sum were one statement, or all of the transaction saw one snapshot. Whoever is overtaken by another
   fold does nothing. */
byte folds;
inline fold() {
    d_step { there_are_moves -> look_at_moves(); folds_seen = folds };
    d_step {
        !batch_locked ->
        if
        :: folds == folds_seen -> folds++; add_all_to_counts_and_unlock()
        :: else
        fi
    }
}
#else
inline fold() {
    d_step { there_are_moves && !batch_locked -> batch_locked = true; look_at_moves() };
    d_step { add_all_to_counts_and_unlock() }
}
#endif

/* What a process that folds keeps in its memory. */
#define FOLDER short seen[4]; bool due; byte folds_seen

/* ---- those who take part */

active proctype Producer() {
    byte next;
    FOLDER;
    if
    :: hold = true
    :: hold = false
    fi;
    do
    :: d_step {
           next < ITEMS && !batch_locked && batch == OPEN ->
           item[next] = QUEUED;
           moved[live]++;
           next++
       }
#ifdef SEAL_WITHOUT_FOLD
    :: d_step { next == ITEMS && !batch_locked && batch == OPEN -> batch = SEALED }; break
#else
    :: d_step {
           next == ITEMS && !batch_locked && batch == OPEN ->
           batch_locked = true;
           batch = SEALED;
           look_at_moves()
       };
       d_step { add_all_to_counts_and_unlock() };
       break
#endif
    :: batch != OPEN -> break
    od
}

inline claim(i) {
    item[i] = RUNNING;
    attempt[i]++;
    job = i;
    mine = attempt[i]
}

#ifdef NO_FENCE
#define holds_the_lease (item[job] == RUNNING)
#else
#define holds_the_lease (item[job] == RUNNING && attempt[job] == mine)
#endif

/* The row changes only for the attempt that holds the lease, and the move is written only if the row changed. */
inline settle() {
    if
    :: holds_the_lease ->
        accepted_a_stale_one = accepted_a_stale_one || attempt[job] != mine;
        accepted_one_twice = accepted_one_twice || settled[job] == mine;
        settled[job] = mine;
        item[job] = outcome;
        record_end()
    :: else ->
#ifdef COUNT_ANYWAY
        record_end()
#else
        skip
#endif
    fi
}

inline record_end() {
    if
    :: outcome == COMPLETED -> move(live, completed); completions[job]++
    :: else -> move(live, failed)
    fi
}

inline forget() {
    job = 0;
    mine = 0;
    outcome = 0
}

#ifdef FOLD_ONLY_WHILE_SETTLING
/* In the settlement's own transaction, if the batch is free: it does not see what others commit after its look. */
inline begin_settlement() {
    d_step {
        if
        :: !batch_locked -> batch_locked = true; due = true; look_at_moves()
        :: else
        fi
    }
}
inline settle_and_commit() {
    if
    :: due ->
        due = false;
        leave_out_moves();
        settle();
        take_in_moves();                                 /* so it has seen, in addition, its own */
        add_all_to_counts_and_unlock()
    :: else -> settle()
    fi
}
inline leave_out_moves() {
    seen[live] = seen[live] - moved[live];
    seen[completed] = seen[completed] - moved[completed];
    seen[failed] = seen[failed] - moved[failed]
}
inline take_in_moves() {
    seen[live] = seen[live] + moved[live];
    seen[completed] = seen[completed] + moved[completed];
    seen[failed] = seen[failed] + moved[failed]
}
#else
inline begin_settlement() { skip }
inline settle_and_commit() { settle() }
#endif

active [WORKERS] proctype Worker() {
    byte job, mine;
    mtype outcome;
    FOLDER;
end:
    do
    :: atomic { d_step { item[0] == QUEUED -> claim(0) }; goto leased }
    :: atomic { d_step { item[1] == QUEUED -> claim(1) }; goto leased }
    od;
leased:
    atomic {
        if
        :: outcome = COMPLETED
        :: d_step { failures > 0 -> failures--; outcome = FAILED }
        :: d_step { deaths > 0 -> deaths--; orphaned[job] = true; forget() }; goto end
        fi
    };
    do
    :: begin_settlement();
       atomic {
           d_step { settle_and_commit() };
           if
           :: d_step { lost_replies > 0 -> lost_replies-- }
           :: d_step { forget() }; break
           fi
       }
    od;
    if
#ifdef FOLD_ONLY_WHILE_SETTLING
    :: true
#else
    :: fold()
    :: !there_are_moves
#endif
    :: d_step { deaths > 0 -> deaths-- }
    fi;
    goto end
}

/* The lease of a dead worker ends; that of a living one may, while it stands still. */
#define lease_ended(i) (item[i] == RUNNING && (orphaned[i] || pauses > 0))

inline use_up_lease(i) {
    if
    :: orphaned[i] -> orphaned[i] = false
    :: else -> pauses--
    fi
}

inline rescue(i) {
#ifdef RESCUE_WHAT_WAS_READ
    d_step { lease_ended(i) -> use_up_lease(i) };
    item[i] = QUEUED
#else
    d_step { lease_ended(i) -> use_up_lease(i); item[i] = QUEUED }
#endif
}

active proctype Upkeep() {
    FOLDER;
end:
    do
    :: rescue(0)
    :: rescue(1)
#if !defined(FOLD_ONLY_WHILE_SETTLING) && !defined(UPKEEP_WITHOUT_FOLD)
    :: fold()
#endif
    od
}

#ifdef CANCEL_WITHOUT_FOLD
inline forget_moves() {
    seen[live] = 0;
    seen[completed] = 0;
    seen[failed] = 0;
    seen[excused] = 0
}
#endif

inline cancel(i) {
    if
    :: is_live(i) -> item[i] = CANCELLED; move(live, excused)
    :: else
    fi
}

/* Makes something live again, so it waits for who is folding. */
#ifdef RETRY_WITHOUT_LOCK
#define may_retry(i) (retries > 0 && item[i] == FAILED)
#else
#define may_retry(i) (retries > 0 && item[i] == FAILED && !batch_locked)
#endif

/* Waives at last what it does not retry, and leaves folding to others. Cancelling folds, as sealing does: where nothing
   is live there is no move by which others would find the batch. */
active proctype Operator() {
    FOLDER;
end:
    do
    :: d_step { may_retry(0) -> retries--; item[0] = QUEUED; move(failed, live) }
    :: d_step { may_retry(1) -> retries--; item[1] = QUEUED; move(failed, live) }
    :: d_step { item[0] == FAILED -> item[0] = WAIVED; move(failed, excused) }
    :: d_step { item[1] == FAILED -> item[1] = WAIVED; move(failed, excused) }
    :: d_step {
           cancels > 0 && !batch_locked && batch != DONE ->
           cancels--;
           batch_locked = true;
           batch = SEALED;
           was_cancelled = true;
           cancel(0);
           cancel(1);
           look_at_moves()
       };
#ifdef CANCEL_WITHOUT_FOLD
       d_step { forget_moves(); batch_locked = false }
#else
       d_step { add_all_to_counts_and_unlock() }
#endif
    od
}
