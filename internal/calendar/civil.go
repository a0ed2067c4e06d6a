package calendar

// Date returns the date of the day that is days after 1 January 1970.
//
// Date and daysTo, which returns the first day of a month, are Howard Hinnant's civil_from_days and
// days_from_civil (https://howardhinnant.github.io/date_algorithms.html). Years begin in March, so
// that a leap day is the last day of its year, and 400 years have 146,097 days.
func Date(days int64) (year, month, dayOfMonth int64) {
	days += 719468
	era := floor(days, 146097)
	ofEra := days - era*146097
	yearOfEra := (ofEra - ofEra/1460 + ofEra/36524 - ofEra/146096) / 365
	ofYear := ofEra - (365*yearOfEra + yearOfEra/4 - yearOfEra/100)
	fromMarch := (5*ofYear + 2) / 153
	dayOfMonth = ofYear - (153*fromMarch+2)/5 + 1
	month = fromMarch + 3
	year = yearOfEra + 400*era
	if month > 12 {
		month -= 12
		year++
	}
	return year, month, dayOfMonth
}

func daysTo(year, month int64) int64 {
	if month <= 2 {
		year--
		month += 12
	}
	era := floor(year, 400)
	yearOfEra := year - 400*era
	ofYear := (153*(month-3) + 2) / 5
	return era*146097 + 365*yearOfEra + yearOfEra/4 - yearOfEra/100 + ofYear - 719468
}

// floor returns a/b, rounded down.
func floor(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}
