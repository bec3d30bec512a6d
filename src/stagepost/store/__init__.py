"""Operations and their SQL: generators that yield statements and know no driver."""
