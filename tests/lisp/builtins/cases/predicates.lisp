(nil? nil) => true
(nil? false) => false
(nil?) !! nil?
(some? nil) => false
(some? false) => true
(some?) !! some?
(true? true) => true
(true? 1) => false
(true?) !! true?
(false? false) => true
(false? nil) => false
(false?) !! false?
(boolean? true) => true
(boolean? nil) => false
(boolean? 1 2) !! boolean?
(number? 1) => true
(number? 1.5) => true
(number? true) => false
(number? "1") => false
(number?) !! number?
(int? 1) => true
(int? 1.0) => false
(int? true) => false
(int?) !! int?
(integer? 5) => true
(integer? "5") => false
(integer? nil) => false
(float? 1.0) => true
(float? 1) => false
(float?) !! float?
(double? 0.5) => true
(double? 5) => false
(double? nil) => false
(string? "") => true
(string? :a) => false
(string?) !! string?
(keyword? :a) => true
(keyword? "a") => false
(keyword?) !! keyword?
(vector? []) => true
(vector? #{}) => false
(vector? nil) => false
(list? [1]) => true
(list? {}) => false
(list? "a") => false
(sequential? [1]) => true
(sequential? #{1}) => false
(sequential? {}) => false
(seq? (map inc [1])) => true
(seq? nil) => false
(seq? {}) => false
(map? {}) => true
(map? #{}) => false
(map? [1]) => false
(set? #{}) => true
(set? {}) => false
(set?) !! set?
(coll? []) => true
(coll? {}) => true
(coll? #{}) => true
(coll? "a") => false
(coll? nil) => false
(seqable? []) => true
(seqable? 5) => false
(seqable? :a) => false
(fn? inc) => true
(fn? (fn [x] x)) => true
(fn? (comp inc dec)) => true
(fn? :a) => false
(fn? nil) => false
(ifn? :a) => true
(ifn? {}) => true
(ifn? [1]) => false
(zero? 0) => true
(zero? 0.0) => true
(zero? nil) => false
(zero? "0") => false
(zero? false) => false
(pos? 1) => true
(pos? -0.5) => false
(pos? nil) !! pos?: expects a number, got nil
(neg? -1) => true
(neg? 0) => false
(neg? "a") !! neg?: expects a number
(even? 4) => true
(even? -3) => false
(even? 2.0) !! even?: expects an integer, got a float
(odd? 3) => true
(odd? 0) => false
(odd? nil) !! odd?: expects an integer, got nil
(pos-int? 1) => true
(pos-int? 1.0) => false
(pos-int? nil) => false
(neg-int? -1) => true
(neg-int? 0) => false
(neg-int? :a) => false
(nat-int? 0) => true
(nat-int? -1) => false
(nat-int? "0") => false
(boolean nil) => false
(boolean false) => false
(boolean 0) => true
(type 1) => :integer
(type 1.5) => :float
(type "a") => :string
(type :a) => :keyword
(type [1]) => :vector
(type {}) => :map
(type #{}) => :set
(type nil) => :nil
(type true) => :boolean
(type inc) => :function
