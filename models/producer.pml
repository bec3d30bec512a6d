/* Filling a batch: producers add chunks of a stream of items, die, resume, and run beside each other.

   One item stands for a chunk. Each `d_step` is a transaction that holds the lock of the batch's row. A producer knows
   how far it has read its stream; the cursor in the batch's row says how far all of them have added. Broken variants
   are chosen by -D; see README.md.
*/

#define ITEMS 3
#define PRODUCERS 2

byte kills = 2;
byte lost_replies = 1;

/* The database */
byte rows[ITEMS];               /* of each item's key */
byte counted;                   /* counts and moves together */
byte cursor;
bool sealed;

#define all_rows (rows[0] + rows[1] + rows[2])
#define none_doubled (rows[0] <= 1 && rows[1] <= 1 && rows[2] <= 1)
#define none_lost (!sealed || (rows[0] > 0 && rows[1] > 0 && rows[2] > 0))
#define counts_exact (counted == all_rows)

ltl nothing_is_doubled { [] none_doubled }
ltl nothing_is_lost { [] none_lost }
ltl counts_are_exact { [] counts_exact }
ltl safe { [] (none_doubled && none_lost && counts_exact) }
ltl ends { <> [] (sealed && all_rows == ITEMS) }

/* The id is made from the item's key, so a row that is there is left alone. Only rows that are new are counted. */
inline insert(i) {
    if
#ifdef RANDOM_IDS
    :: true -> rows[i]++; counted++
#else
    :: rows[i] == 0 -> rows[i]++; counted++
#endif
    :: else ->
#ifdef COUNT_WHAT_IS_OFFERED
        counted++
#else
        skip
#endif
    fi
}

/* A chunk that the cursor is past has been added by another, or by a commit whose reply was lost. */
#if defined(CURSOR_FIRST)
inline add() {
    d_step { offered = (cursor == position); cursor = (offered -> position + 1 : cursor); found = cursor };
    d_step {
        if
        :: offered -> insert(position); offered = false
        :: else
        fi
    }
}
#elif defined(CURSOR_LATER) || defined(CHUNK_WITHOUT_LOCK)
inline add() {
    look_for_chunk();
    d_step {
        if
        :: offered -> cursor = (cursor > position -> cursor : position + 1); offered = false
        :: else
        fi;
        found = cursor
    }
}
#else
inline add() {
    d_step {
        if
        :: cursor == position -> insert(position); cursor++
        :: else
        fi;
        found = cursor
    }
}
#endif

#ifdef CHUNK_WITHOUT_LOCK
inline look_for_chunk() {
    offered = (cursor == position);
    d_step {
        if
        :: offered -> insert(position)
        :: else
        fi
    }
}
#else
inline look_for_chunk() {
    d_step {
        if
        :: cursor == position -> insert(position); offered = true
        :: else
        fi
    }
}
#endif

active [PRODUCERS] proctype Producer() {
    byte position, found;
    bool offered;
    do
    :: position < ITEMS ->
        add();
        if
        :: position = found
        :: d_step { lost_replies > 0 -> lost_replies-- }            /* does it again */
        fi
    :: position == ITEMS -> sealed = true; break
    :: d_step { kills > 0 -> kills--; position = cursor; found = 0 }  /* dies, and resumes */
    od
}
