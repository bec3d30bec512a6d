select :now
