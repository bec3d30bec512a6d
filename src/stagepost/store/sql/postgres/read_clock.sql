-- Differs: a parameter on its own has no type.
select cast(:now as bigint)
